"""Products of a few rows with weights of 4 or 8 bits, on tensor cores: for 2 rows up to about a hundred.

The weights are the left matrix and the rows of activations the right one: the left side of a tile of tensor cores has at least
16 or 64 rows, which there are of outputs. Weights are rounded to the activations' type in registers, as `quantised_dense`
rounds them for torch: one rule for two rows or a thousand, and sums are never interrupted at the end of a group.

Inputs are split among programs by the matrix's size alone, and added up in order: a row has the same bits in any batch.
"""

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.split_sum import split_sum
from kernels.gpu.tuning import tuned
from kernels.gpu.weight_layout import Packed, load_factors, load_words, spread

TILES = (16, 32, 64)
"""Rows that a program may compute."""


@triton.jit(do_not_specialize=["rows", "mask"])
def quantised_dot_kernel(
    p_x,
    p_words,
    p_factors,
    p_out,
    rows,
    columns,
    outputs,
    x_stride,
    factor_stride,
    mask,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One program for a tile of rows, a tile of outputs and a part of the inputs; [SPLITS, rows, outputs] float32."""
    # [BLOCK_M], [BLOCK_N], [128]
    o_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, 128)
    i_split = tl.program_id(2).to(tl.int64)
    m_rows = o_m < rows
    chunks = tl.cdiv(columns, 128)
    share = tl.cdiv(chunks, SPLITS)
    # [BLOCK_N, BLOCK_M]
    b_sums = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for i_chunk in range(i_split * share, tl.minimum(chunks, (i_split + 1) * share)):
        b_words = load_words(p_words, i_chunk, o_n, outputs, BITS, GROUP)
        b_scales, b_minima = load_factors(p_factors, i_chunk, o_n, outputs, factor_stride, BITS, GROUP)
        b_weights = spread(b_words, mask, b_scales, b_minima, p_x.dtype.element_ty, BITS)
        o_column = i_chunk * 128 + o_k
        # [128, BLOCK_M]
        m_x = (o_column < columns)[:, None] & m_rows[None, :]
        b_x = tl.load(p_x + o_m[None, :] * x_stride + o_column[:, None], mask=m_x, other=0.0)
        b_sums = tl.dot(b_weights, b_x, b_sums)
    p_tile = p_out + (i_split * rows + o_m)[None, :] * outputs + o_n[:, None]
    tl.store(p_tile, b_sums, mask=(o_n < outputs)[:, None] & m_rows[None, :])


def quantised_dot(x: torch.Tensor, packed: Packed, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Multiply some rows; see `kernels.gpu.quantised_linear`, which checks the arguments."""
    rows, outputs = x.shape[0], packed.outputs
    block = next((size for size in TILES if rows <= size), TILES[-1])
    # the splits of all tiles have to agree; warps may differ, each has outputs of its own
    config = tuned("quantised_dot", x.device, bits=packed.bits, outputs=outputs, columns=packed.columns, tile=block)
    splits = config.sizes["SPLITS"]
    sums = torch.empty(splits, rows, outputs, dtype=torch.float32, device=x.device)
    launch(
        quantised_dot_kernel,
        (triton.cdiv(rows, block), triton.cdiv(outputs, config.sizes["BLOCK_N"]), splits),
        x,
        packed.words,
        packed.factors,
        sums,
        rows,
        packed.columns,
        outputs,
        x.stride(0),
        packed.factor_stride,
        packed.mask,
        config=config,
        BITS=packed.bits,
        GROUP=packed.tile_group,
        BLOCK_M=block,
    )
    return split_sum(sums, bias, dtype)
