"""Matrix products on torch's own kernels: in 8 bits on both sides, and what CPUs without bfloat16 arithmetic take."""

import torch
from torch.nn import functional as F

from kernels.cpu.buffers import Buffers
from kernels.cpu.int8 import dequantise_bf16, dequantise_f32, quantise_bf16, quantise_f32
from kernels.cpu.launch import Launch
from kernels.dense import DenseProduct

# torch's kernels read or compute so many at once, whether they are there or not.
_INT4_OUTPUTS, _INT8_COLUMNS = 16, 16


class CpuDenseProduct(DenseProduct):
    """A row of bfloat16 has the same bits alone and beside others.

    oneDNN adds up a single row in another order than two or more, which shows in a few of a thousand results: so one row is
    computed twice. That takes little longer, as memory is what it waits for.
    """

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply; see `kernels.dense.DenseProduct`."""
        if len(x) == 1 and self._weight.dtype == torch.bfloat16:
            return super().__call__(x.expand(2, -1).contiguous())[:1]
        return super().__call__(x)


class Int4Product:
    """Packed 4-bit weights with bfloat16 scales; see `kernels.ops.Device.int4`.

    torch's kernel wants `w = (code - 8) * scale + zero`, so `zero = minimum + 8 * scale`.
    """

    def __init__(
        self, codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor, group: int, bias: torch.Tensor | None
    ) -> None:
        self._outputs, self._columns = codes.shape
        padding = (0, 0, 0, -self._outputs % _INT4_OUTPUTS)
        codes, scales, minima = (F.pad(part, padding) for part in (codes, scales, minima))
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1)
        # The kernel wants [groups, out, 2].
        self._scales = torch.stack([scales, minima + 8 * scales], -1).transpose(0, 1).contiguous().bfloat16()
        self._group = group
        self._bias = None if bias is None else bias.bfloat16()
        self.nbytes = self._packed.nbytes + self._scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply bfloat16."""
        x = F.pad(x, (0, self._columns - x.shape[1]))
        out: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self._packed, self._group, self._scales)
        if out.shape[1] > self._outputs:
            out = out[:, : self._outputs].contiguous()
        return out if self._bias is None else out + self._bias


class Int8Product:
    """Weights in 8 bits with a bfloat16 scale for each row; see `kernels.ops.Device.int8`."""

    def __init__(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._codes = F.pad(codes, (0, -codes.shape[1] % _INT8_COLUMNS))
        self._scales = scales.bfloat16()
        self._bias = None if bias is None else bias.bfloat16()
        self.nbytes = self._codes.nbytes + self._scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply bfloat16."""
        x = F.pad(x, (0, self._codes.shape[1] - x.shape[1]))
        out: torch.Tensor = torch.ops.aten._weight_int8pack_mm(x, self._codes, self._scales)
        return out if self._bias is None else out + self._bias


class Int8DynamicProduct:
    """Weights and activations in 8 bits, these with a scale per row found at run time: twice the arithmetic of bfloat16."""

    def __init__(
        self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None, buffers: Buffers, threads: int
    ) -> None:
        self._codes, self._scales, self._bias = codes.t(), scales, bias
        self._buffers, self._threads = buffers, threads
        self.nbytes = codes.nbytes + scales.nbytes

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
