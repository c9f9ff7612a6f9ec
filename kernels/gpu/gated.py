"""The gate of a feed-forward layer: activation(gate) * up."""

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.tuning import tuned


@triton.jit
def _sigmoid(b_x):
    # exp of a number that is never positive does not overflow
    b_e = tl.exp(-tl.abs(b_x))
    return tl.where(b_x < 0, b_e, 1.0) / (1.0 + b_e)


@triton.jit
def gated_kernel(p_x, p_out, columns, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """One program for each row and stretch of columns."""
    i_row = tl.program_id(0).to(tl.int64)
    # [BLOCK]
    o_column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_column = o_column < columns
    b_gate = tl.load(p_x + i_row * 2 * columns + o_column, mask=m_column, other=0.0).to(tl.float32)
    b_up = tl.load(p_x + i_row * 2 * columns + columns + o_column, mask=m_column, other=0.0).to(tl.float32)
    if GELU:
        # (1 + tanh(x)) / 2 is sigmoid(2 x); 1.5957691 is 2 sqrt(2 / pi): Hendrycks and Gimpel 2016, section 2
        b_gate *= _sigmoid(1.5957691216057308 * (b_gate + 0.044715 * b_gate * b_gate * b_gate))
    else:
        b_gate *= _sigmoid(b_gate)
    tl.store(p_out + i_row * columns + o_column, (b_gate * b_up).to(p_out.dtype.element_ty), mask=m_column)


def gated(gate_up: torch.Tensor, *, gelu: bool) -> torch.Tensor:
    """Return activation(gate) * up, computed in float32.

    Args:
        gate_up: [rows, 2 * intermediate], contiguous: the gates, then the ups. float16, bfloat16 or float32.
        gelu: the tanh form of GELU; else SiLU.

    Returns:
        [rows, intermediate] of the same type.

    Raises:
        ValueError: an odd number of columns, or rows that are not contiguous.
    """
    rows, both = gate_up.shape
    if both % 2 or not gate_up.is_contiguous():
        raise ValueError(
            f"gates and ups must be contiguous and of one size, not {both} columns with strides {gate_up.stride()}"
        )
    columns = both // 2
    out = torch.empty(rows, columns, dtype=gate_up.dtype, device=gate_up.device)
    config = tuned("gated", gate_up.device)
    grid = (rows, triton.cdiv(columns, config.sizes["BLOCK"]))
    launch(gated_kernel, grid, gate_up, out, columns, config=config, GELU=gelu)
    return out
