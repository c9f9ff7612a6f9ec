"""Drawing where the filters keep more tokens than can be sorted at once: searches in the descending order, without the order.

A logit is 32 bits, the largest first. The value at which a count or a mass is reached is found four bits at a time: a walk over
a row sums what lies under each of the 16 next digits, and the digit under which the sum passes the goal is the next one of the
answer. After eight walks the value is known, with the count and the mass of all that is larger; equal values follow by id.
"""

import triton
import triton.language as tl

from kernels.gpu.candidates import UNDECIDED
from kernels.gpu.logits import coldness_of, largest_of, logit_of, number_of, ordered_of, weight_of


@triton.jit
def _depth_of(b_x):
    """Integers from 0 to 2**32 - 1 in descending order of the numbers, as int64."""
    return 0x7FFFFFFF - ordered_of(b_x).to(tl.int64)


@triton.jit
def _search(p_row, vocab, best, coldness, goal, BY_MASS: tl.constexpr, STRICT: tl.constexpr, BLOCK: tl.constexpr):
    """Find where the sum over the descending order reaches the goal, or exceeds it if `STRICT`.

    Returns the value there, and the count (int32) and the mass of all larger values.
    """
    # [16]
    i_digit = tl.arange(0, 16)
    depth = tl.full([], 0, tl.int64)
    count = tl.full([], 0, tl.int32)
    mass = tl.full([], 0.0, tl.float64)
    for step in range(8):
        shift = 28 - 4 * step
        b_counts = tl.zeros([16], tl.int32)
        b_masses = tl.zeros([16], tl.float64)
        for start in range(0, vocab, BLOCK):
            # [BLOCK]
            i_token = start + tl.arange(0, BLOCK)
            m_token = i_token < vocab
            b_x = tl.load(p_row + i_token, mask=m_token, other=float("-inf"))
            b_depth = _depth_of(b_x)
            m_token = m_token & ((b_depth >> (shift + 4)) == depth)
            # [16, BLOCK]
            m_digit = m_token[None, :] & (((b_depth >> shift) & 15).to(tl.int32)[None, :] == i_digit[:, None])
            b_counts += tl.sum(m_digit.to(tl.int32), 1)
            b_masses += tl.sum(tl.where(m_digit, weight_of(b_x, best, coldness)[None, :], 0.0), 1)
        if BY_MASS:
            b_sums = mass + tl.cumsum(b_masses, 0)
            m_possible = b_masses > 0.0
        else:
            b_sums = count + tl.cumsum(b_counts, 0)
            m_possible = b_counts > 0
        m_passed = b_sums > goal if STRICT else b_sums >= goal
        digit = tl.min(tl.where(m_possible & m_passed, i_digit, 16), 0)
        # rounding may put the goal behind all that has weight
        digit = tl.where(digit < 16, digit, tl.max(tl.where(m_possible, i_digit, 0), 0))
        count += tl.sum(tl.where(i_digit < digit, b_counts, 0), 0)
        mass += tl.sum(tl.where(i_digit < digit, b_masses, 0.0), 0)
        depth = depth * 16 + digit
    return number_of((0x7FFFFFFF - depth).to(tl.int32)), count, mass


@triton.jit
def _mass_of(p_row, vocab, best, coldness, first, BLOCK: tl.constexpr):
    """The mass of the first so many tokens."""
    value, count, mass = _search(p_row, vocab, best, coldness, first, False, False, BLOCK)
    return mass + (first - count) * weight_of(value, best, coldness)


@triton.jit
def beyond_kernel(
    p_logits,
    p_keys,
    p_tokens,
    p_temperature,
    p_top_k,
    p_top_p,
    p_min_p,
    p_uniform,
    row_stride,
    vocab,
    STRETCHES: tl.constexpr,
    BLOCK_STRETCHES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The tokens of rows that are undecided, one program for each row. The others are left at once."""
    i_row = tl.program_id(0).to(tl.int64)
    if tl.load(p_tokens + i_row) != UNDECIDED:
        return
    coldness = coldness_of(tl.load(p_temperature + i_row))
    top_k = tl.load(p_top_k + i_row)
    top_p = tl.load(p_top_p + i_row)
    min_p = tl.load(p_min_p + i_row)
    best = logit_of(largest_of(p_keys, i_row, STRETCHES, BLOCK_STRETCHES))
    p_row = p_logits + i_row * row_stride
    kept = tl.where(top_k > 0, tl.minimum(top_k, vocab), vocab).to(tl.int32)
    if top_p < 1.0:
        goal = top_p * _mass_of(p_row, vocab, best, coldness, kept, BLOCK)
        goal -= goal * 1e-12
        value, count, mass = _search(p_row, vocab, best, coldness, goal, True, False, BLOCK)
        equals = tl.ceil((goal - mass) / weight_of(value, best, coldness)).to(tl.int32)
        kept = tl.minimum(kept, count + tl.maximum(equals, 1))
    if min_p > 0.0:
        likely = 0
        for start in range(0, vocab, BLOCK):
            i_token = start + tl.arange(0, BLOCK)
            b_x = tl.load(p_row + i_token, mask=i_token < vocab, other=float("-inf"))
            likely += tl.sum((weight_of(b_x, best, coldness) >= min_p).to(tl.int32), 0)
        kept = tl.minimum(kept, tl.maximum(likely, 1))
    goal = tl.load(p_uniform + i_row) * _mass_of(p_row, vocab, best, coldness, kept, BLOCK)
    value, count, mass = _search(p_row, vocab, best, coldness, goal, True, True, BLOCK)
    before = tl.floor((goal - mass) / weight_of(value, best, coldness)).to(tl.int32)
    before = tl.maximum(tl.minimum(before, kept - count - 1), 0)
    # of the equal ones, that which has so many before it, or the last
    token = tl.full([], -1, tl.int32)
    seen = 0
    for start in range(0, vocab, BLOCK):
        i_token = start + tl.arange(0, BLOCK)
        m_token = i_token < vocab
        m_equal = m_token & (tl.load(p_row + i_token, mask=m_token, other=float("-inf")) == value)
        b_rank = seen + tl.cumsum(m_equal.to(tl.int32), 0) - 1
        token = tl.maximum(token, tl.max(tl.where(m_equal & (b_rank <= before), i_token, -1), 0))
        seen += tl.sum(m_equal.to(tl.int32), 0)
    tl.store(p_tokens + i_row, token.to(tl.int64))
