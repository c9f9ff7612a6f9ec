"""8-bit weights, symmetric, one scale per output: with activations as they are (decode) or in 8 bits too (prefill)."""

import torch
from torch.nn import functional as F

from backends.engine.precision.rounding import Int8Rows
from kernels.cpu.buffers import Buffers
from kernels.cpu.int8 import dequantise_bf16, dequantise_f32, quantise_bf16, quantise_f32
from kernels.cpu.launch import Launch

_COLUMNS = 16  # torch's kernel reads so many at once, whether they are there or not


class Int8WeightOnly:
    """Weights in 8 bits, activations in bfloat16, on torch's kernel: for CPUs that do not multiply bfloat16."""

    kind = "int8"

    def __init__(self, weight: Int8Rows, bias: torch.Tensor | None) -> None:
        self._codes = F.pad(weight.codes, (0, -weight.codes.shape[1] % _COLUMNS))
        self._scales = weight.scales.bfloat16()
        self._bias = None if bias is None else bias.bfloat16()
        self.nbytes = self._codes.nbytes + self._scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        if x.shape[1] < self._codes.shape[1]:
            x = F.pad(x, (0, self._codes.shape[1] - x.shape[1]))
        out: torch.Tensor = torch.ops.aten._weight_int8pack_mm(x, self._codes, self._scales)
        return out if self._bias is None else out + self._bias


class Int8Dynamic:
    """Weights and activations in 8 bits, these with a scale per row found at run time: twice the arithmetic of bfloat16."""

    kind = "int8"

    def __init__(self, weight: Int8Rows, bias: torch.Tensor | None, buffers: Buffers, threads: int) -> None:
        self._codes, self._scales, self._bias = weight.codes.t(), weight.scales, bias
        self._buffers, self._threads = buffers, threads
        self.nbytes = self._codes.nbytes + self._scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        rows, columns = x.shape
        outputs = self._scales.shape[0]
        half = x.dtype == torch.bfloat16
        codes = self._buffers.take("codes", rows, columns, torch.int8)
        scales = self._buffers.take("row scales", rows, 1, torch.float32)
        Launch(quantise_bf16 if half else quantise_f32, x, codes, scales, rows, columns, threads=self._threads)()
        sums = torch._int_mm(codes, self._codes)
        out = torch.empty(rows, outputs, dtype=x.dtype)
        dequantise = dequantise_bf16 if half else dequantise_f32
        Launch(dequantise, sums, scales, self._scales, self._bias, out, rows, outputs, threads=self._threads)()
        return out
