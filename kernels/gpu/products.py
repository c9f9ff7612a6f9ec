"""Products bound to their weights. See `kernels.ops.Product`."""

import torch
from torch.nn import functional as F

from kernels.gpu.fp8 import fp8_product, to_fp8
from kernels.gpu.quantised_linear import quantised_product
from kernels.gpu.weight_layout import Packed

_LEAST_ROWS = 32  # torch multiplies 8-bit integers only from 17 rows on, and in multiples of 8
_WORDS_AT_ONCE = 16_384


class QuantisedProduct:
    """Weights of 4 or 8 bits."""

    def __init__(self, packed: Packed, bias: torch.Tensor | None) -> None:
        self._packed = packed
        self._bias = None if bias is None else bias.to(packed.words.device)
        self.nbytes = packed.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply float16 or bfloat16."""
        return quantised_product(_widened(x, self._packed.columns), self._packed, self._bias)


class Int8DynamicProduct:
    """Weights and activations in 8 bits, these with a scale per row found at run time; torch multiplies."""

    def __init__(self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._codes, self._scales = codes.t(), scales
        self._bias = None if bias is None else bias.to(codes.device)
        self.nbytes = codes.nbytes + scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        rows = len(x)
        exact = F.pad(x.float(), (0, 0, 0, max(_LEAST_ROWS - rows, -rows % 8)))
        scales = exact.abs().amax(1, keepdim=True) / 127
        codes = (exact / torch.where(scales > 0, scales, 1)).round_().to(torch.int8)
        out = torch._int_mm(codes, self._codes)[:rows].float() * scales[:rows] * self._scales
        return (out if self._bias is None else out + self._bias).to(x.dtype)


class Fp8Product:
    """Weights and activations in 8-bit floating point; torch multiplies."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = to_fp8(weight)
        self._bias = None if bias is None else bias.to(weight.device, torch.bfloat16)
        self.nbytes = self._weight.codes.nbytes + self._weight.scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply bfloat16."""
        return fp8_product(x, self._weight, self._bias)


class DenseLogits:
    """Words in bfloat16 or float32. Where they are bfloat16, hidden states are rounded to it too."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight, self.nbytes = weight, weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply float32, to float32."""
        weight = self._weight
        if weight.dtype == torch.float32:
            return x @ weight.t()
        x = x.to(weight.dtype)
        if weight.is_cuda:
            return torch.mm(x, weight.t(), out_dtype=torch.float32)
        parts = weight.split(_WORDS_AT_ONCE)
        return torch.cat([x.float() @ part.float().t() for part in parts], 1)


class Int8Logits:
    """Words in 8 bits with a scale for every 32 columns; hidden states are rounded to 16 bits."""

    def __init__(self, packed: Packed, half: torch.dtype) -> None:
        self._packed, self._half, self.nbytes = packed, half, packed.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply float32, to float32."""
        return quantised_product(_widened(x.to(self._half), self._packed.columns), self._packed, None, torch.float32)


def _widened(x: torch.Tensor, columns: int) -> torch.Tensor:
    """Add columns of zeros where weights were padded to whole groups."""
    return x if x.shape[1] == columns else F.pad(x, (0, columns - x.shape[1]))
