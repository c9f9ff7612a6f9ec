"""Products in 8-bit floating point, float8_e4m3fn, for Ada, Hopper and later: a kernel rounds rows, torch multiplies."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import capability, launch
from kernels.gpu.tuning import tuned
from kernels.quantised import fp8_rows

LEAST_CAPABILITY = 89
"""GPUs below have no such products."""

_MULTIPLE = 16  # of inputs and outputs, for torch


@dataclass(frozen=True, slots=True)
class Fp8Weight:
    """A matrix in 8-bit floating point: `codes` [outputs, inputs] float8_e4m3fn times `scales` [outputs] float32."""

    codes: torch.Tensor
    scales: torch.Tensor


def to_fp8(weight: torch.Tensor) -> Fp8Weight:
    """Round a matrix, [outputs, inputs], with one scale for each output.

    Raises:
        ValueError: inputs or outputs that are no multiple of 16.
    """
    if any(size % _MULTIPLE for size in weight.shape):
        raise ValueError(f"a matrix of {list(weight.shape)} is not possible in 8-bit floating point, only multiples of 16")
    codes, scales = fp8_rows(weight)
    return Fp8Weight(codes, scales[:, 0])


@triton.jit
def fp8_rows_kernel(p_x, p_codes, p_scales, columns, x_stride, BLOCK: tl.constexpr):
    """One program for each row: the first pass finds its largest number, the second one rounds."""
    i_row = tl.program_id(0).to(tl.int64)
    p_row = p_x + i_row * x_stride
    # [BLOCK]
    o_block = tl.arange(0, BLOCK)
    b_largest = tl.zeros([BLOCK], tl.float32)
    for i_first in range(0, columns, BLOCK):
        b_x = tl.load(p_row + i_first + o_block, mask=i_first + o_block < columns, other=0.0)
        b_largest = tl.maximum(b_largest, tl.abs(b_x.to(tl.float32)))
    # rounded as torch divides: the fast division is off by a bit
    scale = tl.div_rn(tl.max(b_largest, 0), 448.0)
    # a row of zeros stays one
    inverse = tl.div_rn(1.0, tl.where(scale > 0, scale, 1.0))
    tl.store(p_scales + i_row, scale)
    for i_first in range(0, columns, BLOCK):
        m_block = i_first + o_block < columns
        b_x = tl.load(p_row + i_first + o_block, mask=m_block, other=0.0).to(tl.float32) * inverse
        b_codes = tl.clamp(b_x, -448.0, 448.0).to(tl.float8e4nv)
        tl.store(p_codes + i_row * columns + i_first + o_block, b_codes, mask=m_block)


def fp8_product(x: torch.Tensor, weight: Fp8Weight, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return `x @ w.T + bias`, with the rows of `x` rounded too: see `kernels.quantised.fp8_product`.

    Args:
        x: [rows, inputs] bfloat16; elements of a row are next to each other.
        bias: [outputs], or None; it is rounded to bfloat16.

    Returns:
        [rows, outputs] bfloat16.

    Raises:
        ValueError: a type or shape that does not fit, or a GPU without such products.
    """
    outputs, columns = weight.codes.shape
    if 0 < (found := capability(x.device)) < LEAST_CAPABILITY:
        raise ValueError(f"8-bit floating point needs a compute capability of {LEAST_CAPABILITY}, not {found}")
    if x.dtype != torch.bfloat16 or x.dim() != 2 or x.shape[1] != columns or x.stride(1) != 1:
        raise ValueError(
            f"activations must be bfloat16 rows of {columns} inputs, not {x.dtype} {list(x.shape)} with strides {x.stride()}"
        )
    rows = x.shape[0]
    if not rows:
        return x.new_empty(0, outputs)
    codes = torch.empty(rows, columns, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(rows, 1, dtype=torch.float32, device=x.device)
    config = tuned("fp8_rows", x.device)
    launch(fp8_rows_kernel, (rows,), x, codes, scales, columns, x.stride(0), config=config)
    return torch._scaled_mm(
        codes,
        weight.codes.t(),
        scale_a=scales,
        scale_b=weight.scales[None, :],
        bias=None if bias is None else bias.to(torch.bfloat16),
        out_dtype=torch.bfloat16,
    )
