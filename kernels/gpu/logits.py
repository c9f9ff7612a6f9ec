"""A row of logits on a GPU: its order as integers, its weights, and one pass over its stretches.

Tokens are compared by one integer made of value and id, which no two of them share: larger for larger logits and, among equal
ones, for lower ids. A row is cut into stretches of one size, whatever the batch, so that its bits do not depend on other rows.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-(1 << 63))
"""The key of no token."""


@triton.jit
def ordered_of(b_x):
    """Integers in the order of the numbers: -0.0 is 0.0, and what is no number is above all."""
    b_bits = tl.where(b_x == 0.0, 0.0, b_x).to(tl.int32, bitcast=True)
    b_bits = tl.where(b_x != b_x, 0x7FC00000, b_bits)
    return b_bits ^ ((b_bits >> 31) & 0x7FFFFFFF)


@triton.jit
def number_of(b_ordered):
    """The numbers back from `ordered_of`, given as int32."""
    return (b_ordered ^ ((b_ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def key_of(b_x, i_token):
    """One int64 of value and id."""
    return (ordered_of(b_x).to(tl.int64) << 32) | (0xFFFFFFFF - i_token.to(tl.int64))


@triton.jit
def logit_of(b_key):
    """The value in a key."""
    return number_of((b_key >> 32).to(tl.int32))


@triton.jit
def token_of(b_key):
    """The id in a key, int64."""
    return 0xFFFFFFFF - (b_key & 0xFFFFFFFF)


@triton.jit
def coldness_of(temperature):
    """One over a temperature; at 1e-30, which is the lowest that counts, nothing but the largest logit has weight."""
    return 1.0 / tl.maximum(temperature, 1e-30)


@triton.jit
def weight_of(b_x, best, coldness):
    """Float64 weights relative to the largest logit."""
    return tl.exp((b_x.to(tl.float64) - best.to(tl.float64)) * coldness)


@triton.jit
def largest_of(p_keys, i_row, STRETCHES: tl.constexpr, BLOCK_STRETCHES: tl.constexpr):
    """The largest key of a row, from those of its stretches."""
    o_stretch = tl.arange(0, BLOCK_STRETCHES)
    return tl.max(tl.load(p_keys + i_row * STRETCHES + o_stretch, mask=o_stretch < STRETCHES, other=LOWEST), 0)


@triton.jit
def peaks_kernel(p_logits, p_keys, p_sums, row_stride, vocab, STRETCHES: tl.constexpr, BLOCK: tl.constexpr):
    """The largest key of each stretch, one program for each; with `p_sums` also the sum of exp(logit - largest)."""
    i_row = tl.program_id(0).to(tl.int64)
    i_stretch = tl.program_id(1)
    # [BLOCK]
    i_token = i_stretch * BLOCK + tl.arange(0, BLOCK)
    m_token = i_token < vocab
    b_x = tl.load(p_logits + i_row * row_stride + i_token, mask=m_token, other=float("-inf"))
    largest = tl.max(tl.where(m_token, key_of(b_x, i_token), LOWEST), 0)
    tl.store(p_keys + i_row * STRETCHES + i_stretch, largest)
    if p_sums is not None:
        peak = logit_of(largest)
        # where all is impossible, nothing is shifted, and the sum is 0
        b_shifted = b_x - tl.where(peak == float("-inf"), 0.0, peak)
        tl.store(p_sums + i_row * STRETCHES + i_stretch, tl.sum(tl.exp(b_shifted), 0))
