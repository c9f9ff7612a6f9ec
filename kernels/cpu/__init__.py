"""CPU kernels, written in Python, compiled by numba, run on torch's own OpenMP threads."""
