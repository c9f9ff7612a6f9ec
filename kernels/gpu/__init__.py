"""Operators as Triton kernels, for NVIDIA GPUs. Numbers are proven in Triton's interpreter, code by compiling it."""
