"""Products with weights of 4 or 8 bits and activations of 16: which kernel multiplies how many rows.

One row is a matter of memory alone, and has a kernel without tensor cores. Few rows multiply weights as they are read. For many
rows the same weights would be unpacked again and again: they are unpacked once, and torch multiplies.
"""

import torch
from torch.nn import functional as F

from kernels.gpu.quantised_dense import quantised_dense
from kernels.gpu.quantised_dot import quantised_dot
from kernels.gpu.quantised_gemv import quantised_gemv
from kernels.gpu.tuning import tuned
from kernels.gpu.weight_layout import Packed

_TYPES = (torch.float16, torch.bfloat16)


def quantised_product(
    x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return `x @ w.T + bias` for `w = code * scale + minimum`, or `code * scale`.

    Weights are rounded to the type of `x`, as `quantised_dense` gives them; for one row they stay in float32. Sums are
    float32, rounded once. From two rows up to the crossover a row has the same bits in any batch that is cut into the same
    tiles: of 2 to 16 rows, of 17 to 32, of more.

    Args:
        x: [rows, inputs] float16 or bfloat16; elements of a row are next to each other.
        packed: what `kernels.gpu.weight_layout.pack_int4` or `pack_int8` returned.
        bias: [outputs] of any floating type, contiguous.
        dtype: float32 for sums that are not rounded (weights are then never unpacked for torch, however many rows there are);
            by default the type of `x`.

    Returns:
        [rows, outputs] of that type.

    Raises:
        ValueError: a type or shape that does not fit.
    """
    _check(x, packed, bias, dtype)
    rows, dtype = x.shape[0], dtype or x.dtype
    if not rows:
        return torch.empty(0, packed.outputs, dtype=dtype, device=x.device)
    shape = {"bits": packed.bits, "outputs": packed.outputs, "columns": packed.columns}
    most = tuned("quantised_linear", x.device, **shape).sizes
    if rows <= most["GEMV_ROWS"]:
        return quantised_gemv(x, packed, bias, dtype)
    if rows <= most["DOT_ROWS"] or dtype != x.dtype:
        return quantised_dot(x, packed, bias, dtype)
    return F.linear(x, quantised_dense(packed, x.dtype), None if bias is None else bias.to(x.dtype))


def int4_product(x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply with what `pack_int4` returned, and refuse 8-bit weights; see `quantised_product`."""
    return quantised_product(x, _of(packed, 4), bias)


def int8_product(x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply with what `pack_int8` returned, and refuse 4-bit weights; see `quantised_product`."""
    return quantised_product(x, _of(packed, 8), bias)


def _of(packed: Packed, bits: int) -> Packed:
    if packed.bits != bits:
        raise ValueError(f"weights have {packed.bits} bits, not {bits}")
    return packed


def _check(x: torch.Tensor, packed: Packed, bias: torch.Tensor | None, dtype: torch.dtype | None) -> None:
    if x.dtype not in _TYPES:
        raise ValueError(f"activations must be float16 or bfloat16, not {x.dtype}")
    if dtype not in (None, x.dtype, torch.float32):
        raise ValueError(f"products must be {x.dtype} or float32, not {dtype}")
    if x.dim() != 2 or x.shape[1] != packed.columns or x.stride(1) != 1:
        wanted = f"rows of {packed.columns} inputs, next to each other"
        raise ValueError(f"activations must be {wanted}, not {list(x.shape)} with strides {x.stride()}")
    if bias is not None and (bias.shape != (packed.outputs,) or not bias.is_contiguous()):
        raise ValueError(f"a bias must be {packed.outputs} contiguous numbers, not {list(bias.shape)}")
