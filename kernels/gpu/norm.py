"""The residual stream: add what a layer computed, and norm the sum for the next one."""

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.tuning import tuned


@triton.jit
def _load(p_x, o_column, m_column):
    return tl.load(p_x + o_column, mask=m_column, other=0.0).to(tl.float32)


@triton.jit
def _inverse_root(b_total, columns, epsilon):
    """One over the root mean square, from a sum of squares."""
    return tl.rsqrt(b_total / columns + epsilon)


@triton.jit
def add_norm_kernel(
    p_residual, p_delta, p_weight, p_post, p_out, residual_stride, delta_stride, columns, epsilon, BLOCK: tl.constexpr
):
    """One program for each row, which stays in registers."""
    i_row = tl.program_id(0).to(tl.int64)
    # [BLOCK]
    o_column = tl.arange(0, BLOCK)
    m_column = o_column < columns
    p_residual += i_row * residual_stride
    b_x = _load(p_residual, o_column, m_column)
    if p_delta is not None:
        b_delta = _load(p_delta + i_row * delta_stride, o_column, m_column)
        if p_post is not None:
            b_delta *= _inverse_root(tl.sum(b_delta * b_delta, 0), columns, epsilon)
            b_delta *= _load(p_post, o_column, m_column)
        b_x += b_delta
        tl.store(p_residual + o_column, b_x, mask=m_column)
    b_x *= _inverse_root(tl.sum(b_x * b_x, 0), columns, epsilon)
    b_x *= _load(p_weight, o_column, m_column)
    tl.store(p_out + i_row * columns + o_column, b_x.to(p_out.dtype.element_ty), mask=m_column)


@triton.jit
def _added(p_residual, p_delta, p_post, b_root, o_column, m_column):
    """A part of the new residual stream, not yet stored."""
    b_x = _load(p_residual, o_column, m_column)
    if p_delta is not None:
        b_delta = _load(p_delta, o_column, m_column)
        if p_post is not None:
            b_delta *= b_root
            b_delta *= _load(p_post, o_column, m_column)
        b_x += b_delta
    return b_x


@triton.jit
def add_norm_long_kernel(
    p_residual, p_delta, p_weight, p_post, p_out, residual_stride, delta_stride, columns, epsilon, BLOCK: tl.constexpr
):
    """One program for each row, which it walks over in tiles.

    The sums come first and everything is stored last, so that no thread reads what another one has written.
    """
    i_row = tl.program_id(0).to(tl.int64)
    p_residual += i_row * residual_stride
    # [BLOCK]
    o_tile = tl.arange(0, BLOCK)
    b_root = 1.0
    if p_delta is not None:
        p_delta += i_row * delta_stride
        if p_post is not None:
            b_squares = tl.zeros([BLOCK], tl.float32)
            for start in range(0, columns, BLOCK):
                b_delta = _load(p_delta, start + o_tile, start + o_tile < columns)
                b_squares += b_delta * b_delta
            b_root = _inverse_root(tl.sum(b_squares, 0), columns, epsilon)
    b_squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        b_x = _added(p_residual, p_delta, p_post, b_root, start + o_tile, start + o_tile < columns)
        b_squares += b_x * b_x
    b_inverse = _inverse_root(tl.sum(b_squares, 0), columns, epsilon)
    for start in range(0, columns, BLOCK):
        o_column = start + o_tile
        m_column = o_column < columns
        b_x = _added(p_residual, p_delta, p_post, b_root, o_column, m_column)
        if p_delta is not None:
            tl.store(p_residual + o_column, b_x, mask=m_column)
        b_x *= b_inverse
        b_x *= _load(p_weight, o_column, m_column)
        tl.store(p_out + i_row * columns + o_column, b_x.to(p_out.dtype.element_ty), mask=m_column)


def add_norm(
    residual: torch.Tensor,
    delta: torch.Tensor | None,
    weight: torch.Tensor,
    post: torch.Tensor | None = None,
    *,
    epsilon: float,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Add `delta` to the residual stream in place, then norm it (Zhang and Sennrich, 2019, equation 4).

    Computed in float32. A row's bits depend on nothing but that row. Definition: `kernels.reference.TorchOps.add_norm`.

    Args:
        residual: [rows, hidden] float32; the rows may be apart.
        delta: [rows, hidden] float16, bfloat16 or float32, or None for the first norm of all; the rows may be apart.
        weight: [hidden] float32.
        post: [hidden] float32: `delta` is normed with it before it is added.
        epsilon: added to the mean square.
        dtype: of what is returned: float16, bfloat16 or float32.

    Returns:
        [rows, hidden], contiguous.

    Raises:
        ValueError: shapes, types or strides that do not go together.
    """
    rows, hidden = residual.shape
    if residual.dtype != torch.float32 or residual.stride(1) != 1:
        raise ValueError(f"the residual stream must be float32 in dense rows, not {residual.dtype} {residual.stride()}")
    if delta is not None and (delta.shape != residual.shape or delta.stride(1) != 1):
        raise ValueError(f"{list(delta.shape)} with strides {delta.stride()} cannot be added to {rows} rows of {hidden}")
    if delta is None and post is not None:
        raise ValueError("there is nothing to norm before it is added")
    for name, vector in (("weight", weight), ("post", post)):
        if vector is not None and (vector.shape != (hidden,) or vector.dtype != torch.float32 or vector.stride(0) != 1):
            raise ValueError(f"{name} must be {hidden} dense float32, not {list(vector.shape)} {vector.dtype}")
    out = torch.empty(rows, hidden, dtype=dtype, device=residual.device)
    if rows == 0:
        return out
    config = tuned("norm", residual.device, hidden=hidden)
    kernel = add_norm_kernel if hidden <= config.sizes["BLOCK"] else add_norm_long_kernel
    delta_stride = 0 if delta is None else delta.stride(0)
    strides = (residual.stride(0), delta_stride)
    launch(kernel, (rows,), residual, delta, weight, post, out, *strides, hidden, epsilon, config=config)
    return out
