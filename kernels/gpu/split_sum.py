"""The second pass of a product whose inputs were split: adds up the parts, always in the same order."""

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.tuning import tuned


@triton.jit(do_not_specialize=["rows"])
def split_sum_kernel(p_sums, p_bias, p_out, rows, outputs, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """One program for each row and stretch of outputs."""
    i_row = tl.program_id(0).to(tl.int64)
    # [BLOCK]
    o_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_n = o_n < outputs
    b_total = tl.zeros([BLOCK], tl.float32)
    for i_split in tl.static_range(SPLITS):
        b_total += tl.load(p_sums + (i_split * rows.to(tl.int64) + i_row) * outputs + o_n, mask=m_n, other=0.0)
    if p_bias is not None:
        b_total += tl.load(p_bias + o_n, mask=m_n, other=0.0).to(tl.float32)
    tl.store(p_out + i_row * outputs + o_n, b_total.to(p_out.dtype.element_ty), mask=m_n)


def split_sum(sums: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Add up the parts of a product and the bias, and round once.

    Args:
        sums: [splits, rows, outputs] float32, contiguous.
        bias: [outputs], or None.

    Returns:
        [rows, outputs] of `dtype`.
    """
    splits, rows, outputs = sums.shape
    out = torch.empty(rows, outputs, dtype=dtype, device=sums.device)
    config = tuned("split_sum", sums.device)
    grid = (rows, triton.cdiv(outputs, config.sizes["BLOCK"]))
    launch(split_sum_kernel, grid, sums, bias, out, rows, outputs, config=config, SPLITS=splits)
    return out
