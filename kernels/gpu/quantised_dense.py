"""Weights of 4 or 8 bits as a dense matrix: for products of so many rows that the arithmetic costs more than the reading."""

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.tuning import tuned
from kernels.gpu.weight_layout import CHUNK, Packed, load_factors, load_words, spread


@triton.jit(do_not_specialize=["mask"])
def quantised_dense_kernel(
    p_words,
    p_factors,
    p_out,
    columns,
    outputs,
    factor_stride,
    mask,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program for a chunk of inputs and a stretch of outputs."""
    i_chunk = tl.program_id(0).to(tl.int64)
    # [BLOCK_N], [128]
    o_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_column = i_chunk * 128 + tl.arange(0, 128)
    b_words = load_words(p_words, i_chunk, o_n, outputs, BITS, GROUP)
    b_scales, b_minima = load_factors(p_factors, i_chunk, o_n, outputs, factor_stride, BITS, GROUP)
    # [BLOCK_N, 128]
    b_weights = spread(b_words, mask, b_scales, b_minima, p_out.dtype.element_ty, BITS)
    m_out = (o_n < outputs)[:, None] & (o_column < columns)[None, :]
    tl.store(p_out + o_n[:, None] * columns + o_column[None, :], b_weights, mask=m_out)


def quantised_dense(packed: Packed, dtype: torch.dtype) -> torch.Tensor:
    """Return the weights, each rounded once.

    Args:
        dtype: float16, bfloat16 or float32.

    Returns:
        [outputs, inputs] of `dtype`; equal to `kernels.quantised.int4_weight` or `int8_weight`, rounded, bit for bit.
    """
    device, outputs = packed.words.device, packed.outputs
    out = torch.empty(outputs, packed.columns, dtype=dtype, device=device)
    config = tuned("quantised_dense", device, bits=packed.bits)
    launch(
        quantised_dense_kernel,
        (triton.cdiv(packed.columns, CHUNK), triton.cdiv(outputs, config.sizes["BLOCK_N"])),
        packed.words,
        packed.factors,
        out,
        packed.columns,
        outputs,
        packed.factor_stride,
        packed.mask,
        config=config,
        BITS=packed.bits,
        GROUP=packed.tile_group,
    )
    return out
