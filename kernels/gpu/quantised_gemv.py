"""The product of one row with weights of 4 or 8 bits: it waits for memory, so that tensor cores would not help.

Codes are multiplied as they are, in float32, and scaled once for a word: `scale * sum(x * code) + minimum * sum(x)`. That
takes fewer instructions and half the registers of scaling every weight, and rounds no weight. Inputs are split among programs
by the matrix's size, and added up in order.
"""

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.split_sum import split_sum
from kernels.gpu.tuning import tuned
from kernels.gpu.weight_layout import Packed, load_factors, load_words, spread


@triton.jit(do_not_specialize=["mask"])
def quantised_gemv_kernel(
    p_x,
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
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One program for a stretch of outputs and a part of the inputs; [SPLITS, outputs] float32."""
    # [BLOCK_N]
    o_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    i_split = tl.program_id(1).to(tl.int64)
    chunks = tl.cdiv(columns, 128)
    share = tl.cdiv(chunks, SPLITS)
    WORDS: tl.constexpr = 4 * BITS
    EACH: tl.constexpr = 32 // BITS
    # [BLOCK_N, words]
    b_sums = tl.zeros([BLOCK_N, WORDS], tl.float32)
    for i_chunk in tl.range(i_split * share, tl.minimum(chunks, (i_split + 1) * share), num_stages=STAGES):
        b_words = load_words(p_words, i_chunk, o_n, outputs, BITS, GROUP)
        b_scales, b_minima = load_factors(p_factors, i_chunk, o_n, outputs, factor_stride, BITS, GROUP)
        o_column = i_chunk * 128 + tl.arange(0, 128)
        b_x = tl.load(p_x + o_column, mask=o_column < columns, other=0.0).to(tl.float32)[None, :]
        b_codes = spread(b_words, mask, None, None, tl.float32, BITS)
        b_dots = tl.sum(tl.reshape(b_codes * b_x, [BLOCK_N, WORDS, EACH]), 2)
        b_sums += tl.reshape(tl.broadcast_to(b_scales, b_words.shape), [BLOCK_N, WORDS]) * b_dots
        if BITS == 4:
            b_inputs = tl.sum(tl.reshape(b_x, [1, WORDS, EACH]), 2)
            b_sums += tl.reshape(tl.broadcast_to(b_minima, b_words.shape), [BLOCK_N, WORDS]) * b_inputs
    tl.store(p_out + i_split * outputs + o_n, tl.sum(b_sums, 1), mask=o_n < outputs)


def quantised_gemv(x: torch.Tensor, packed: Packed, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Multiply one row; see `kernels.gpu.quantised_linear`, which checks the arguments."""
    outputs = packed.outputs
    config = tuned("quantised_gemv", x.device, bits=packed.bits, outputs=outputs, columns=packed.columns)
    splits = config.sizes["SPLITS"]
    sums = torch.empty(splits, 1, outputs, dtype=torch.float32, device=x.device)
    launch(
        quantised_gemv_kernel,
        (triton.cdiv(outputs, config.sizes["BLOCK_N"]), splits),
        x,
        packed.words,
        packed.factors,
        sums,
        packed.columns,
        outputs,
        packed.factor_stride,
        packed.mask,
        config=config,
        BITS=packed.bits,
        GROUP=packed.tile_group,
        STAGES=config.num_stages,
    )
    return split_sum(sums, bias, dtype)
