"""Drawing among the largest logits of a row, which is nearly always enough.

The tokens are counted by classes of similar weight. As many whole classes from the top as have room are gathered, in one more
walk, and sorted. The filters keep the first so many tokens of the descending order, so that what they leave is a count; if it
lies among the candidates, the draw is decided. Otherwise the row is left to `kernels.gpu.beyond`.
"""

import triton
import triton.language as tl

from kernels.gpu.logits import LOWEST, coldness_of, key_of, largest_of, logit_of, token_of, weight_of

UNDECIDED = tl.constexpr(-2)
"""Stands for the token of a row that the candidates do not suffice for."""

_PER_NAT = tl.constexpr(64.0)


@triton.jit
def is_filtered(top_k, top_p, min_p):
    """Whether some tokens that the model makes possible are never drawn."""
    return (top_k > 0) | (top_p < 1.0) | (min_p > 0.0)


@triton.jit
def masses_kernel(
    p_logits,
    p_keys,
    p_masses,
    p_temperature,
    p_top_k,
    p_top_p,
    p_min_p,
    row_stride,
    vocab,
    STRETCHES: tl.constexpr,
    BLOCK_STRETCHES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The weight of each stretch, one program for each, where all may be drawn or top-p wants a share of all."""
    i_row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(p_temperature + i_row)
    has_share = (tl.load(p_top_p + i_row) < 1.0) | (tl.load(p_min_p + i_row) <= 0.0)
    best = logit_of(largest_of(p_keys, i_row, STRETCHES, BLOCK_STRETCHES))
    if (temperature > 0.0) & (tl.load(p_top_k + i_row) <= 0) & has_share & (tl.abs(best) < float("inf")):
        i_stretch = tl.program_id(1)
        # [BLOCK]
        i_token = i_stretch * BLOCK + tl.arange(0, BLOCK)
        b_x = tl.load(p_logits + i_row * row_stride + i_token, mask=i_token < vocab, other=float("-inf"))
        coldness = coldness_of(temperature)
        tl.store(p_masses + i_row * STRETCHES + i_stretch, tl.sum(weight_of(b_x, best, coldness), 0))


@triton.jit
def _class_of(b_x, best, scale, CLASSES: tl.constexpr):
    """Depths below the best in steps; a larger logit is never in a later class. The last class holds all that is deep."""
    return tl.minimum((best - b_x) * scale, CLASSES - 1.0).to(tl.int32)


@triton.jit
def gather_kernel(
    p_logits,
    p_keys,
    p_candidates,
    p_counts,
    p_temperature,
    p_top_k,
    p_top_p,
    p_min_p,
    row_stride,
    vocab,
    STRETCHES: tl.constexpr,
    BLOCK_STRETCHES: tl.constexpr,
    CLASSES: tl.constexpr,
    CANDIDATES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The keys of the candidates, in the order of ids, how many they are, and how many tokens are possible at all.

    A logit of -inf makes a token impossible. One program for each row.
    """
    i_row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(p_temperature + i_row)
    filtered = is_filtered(tl.load(p_top_k + i_row), tl.load(p_top_p + i_row), tl.load(p_min_p + i_row))
    best = logit_of(largest_of(p_keys, i_row, STRETCHES, BLOCK_STRETCHES))
    if filtered & (temperature > 0.0) & (tl.abs(best) < float("inf")):
        scale = tl.minimum(_PER_NAT * coldness_of(temperature), 1e30).to(tl.float32)
        p_logits += i_row * row_stride
        # [BLOCK]
        o_tile = tl.arange(0, BLOCK)
        b_sizes = tl.zeros([CLASSES], tl.int32)
        for start in range(0, vocab, BLOCK):
            b_x = tl.load(p_logits + start + o_tile, mask=start + o_tile < vocab, other=float("-inf"))
            b_sizes += tl.histogram(_class_of(b_x, best, scale, CLASSES), CLASSES, mask=b_x > float("-inf"))
        b_sizes = tl.cumsum(b_sizes, 0)
        m_room = b_sizes <= CANDIDATES
        tl.store(p_counts + 2 * i_row, tl.max(tl.where(m_room, b_sizes, 0), 0))
        tl.store(p_counts + 2 * i_row + 1, tl.max(b_sizes, 0))
        classes = tl.sum(m_room.to(tl.int32), 0)
        p_candidates += i_row * CANDIDATES
        found = 0
        for start in range(0, vocab, BLOCK):
            i_token = start + o_tile
            b_x = tl.load(p_logits + i_token, mask=i_token < vocab, other=float("-inf"))
            m_chosen = (b_x > float("-inf")) & (_class_of(b_x, best, scale, CLASSES) < classes)
            b_place = found + tl.cumsum(m_chosen.to(tl.int32), 0)
            tl.store(p_candidates + b_place - 1, key_of(b_x, i_token), mask=m_chosen)
            found += tl.sum(m_chosen.to(tl.int32), 0)


@triton.jit
def _drawn(b_sums, b_weights, m_kept, goal, SIZE: tl.constexpr):
    """The first place at which the sums exceed the goal. What has no weight is never drawn, whatever rounding does."""
    o_place = tl.arange(0, SIZE)
    m_possible = m_kept & (b_weights > 0.0)
    first = tl.min(tl.where(m_possible & (b_sums > goal), o_place, SIZE), 0)
    return tl.where(first < SIZE, first, tl.max(tl.where(m_possible, o_place, 0), 0))


@triton.jit
def _draw_among_all(
    p_logits,
    p_masses,
    best,
    coldness,
    uniform,
    vocab,
    STRETCHES: tl.constexpr,
    BLOCK_STRETCHES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """First a stretch by its weight, then a token within it."""
    o_stretch = tl.arange(0, BLOCK_STRETCHES)
    m_stretch = o_stretch < STRETCHES
    b_masses = tl.load(p_masses + o_stretch, mask=m_stretch, other=0.0)
    b_sums = tl.cumsum(b_masses, 0)
    goal = uniform * tl.max(b_sums, 0)
    i_stretch = _drawn(b_sums, b_masses, m_stretch, goal, BLOCK_STRETCHES)
    goal -= tl.sum(tl.where(o_stretch == i_stretch, b_sums - b_masses, 0.0), 0)
    # [BLOCK]
    i_token = i_stretch * BLOCK + tl.arange(0, BLOCK)
    m_token = i_token < vocab
    b_weights = weight_of(tl.load(p_logits + i_token, mask=m_token, other=float("-inf")), best, coldness)
    return i_stretch * BLOCK + _drawn(tl.cumsum(b_weights, 0), b_weights, m_token, goal, BLOCK)


@triton.jit
def _draw_among_candidates(
    p_candidates,
    p_masses,
    known,
    possible,
    best,
    coldness,
    top_k,
    top_p,
    min_p,
    uniform,
    STRETCHES: tl.constexpr,
    BLOCK_STRETCHES: tl.constexpr,
    CANDIDATES: tl.constexpr,
):
    """Filter and draw; `UNDECIDED` if what the filters keep reaches beyond the candidates."""
    # [CANDIDATES]
    o_place = tl.arange(0, CANDIDATES)
    m_place = o_place < known
    b_keys = tl.sort(tl.load(p_candidates + o_place, mask=m_place, other=LOWEST), descending=True)
    b_weights = tl.where(m_place, weight_of(logit_of(b_keys), best, coldness), 0.0)
    b_sums = tl.cumsum(b_weights, 0)
    # a count above `known` means that it lies beyond them; where they are all there is, none does
    beyond = tl.where(known < possible, known + 1, possible)
    count = tl.where(top_k > 0, tl.minimum(top_k, possible), possible).to(tl.int32)
    # top-p of more than the candidates, but not of all, is of a mass that is not known here
    unknown = (top_p < 1.0) & (top_k > 0) & (count > known)
    if top_p < 1.0:
        mass = tl.sum(tl.where(o_place == count - 1, b_sums, 0.0), 0)
        if (count > known) & (top_k <= 0):
            o_stretch = tl.arange(0, BLOCK_STRETCHES)
            mass = tl.sum(tl.load(p_masses + o_stretch, mask=o_stretch < STRETCHES, other=0.0), 0)
        goal = top_p * mass
        goal -= goal * 1e-12
        fewest = 1 + tl.sum((m_place & (b_sums < goal)).to(tl.int32), 0)
        count = tl.minimum(count, tl.minimum(fewest, beyond))
    likely = tl.maximum(tl.sum((m_place & (b_weights >= min_p)).to(tl.int32), 0), 1)
    count = tl.minimum(count, tl.where(likely < known, likely, beyond))
    m_kept = o_place < count
    mass = tl.sum(tl.where(o_place == count - 1, b_sums, 0.0), 0)
    place = _drawn(b_sums, b_weights, m_kept, uniform * mass, CANDIDATES)
    token = tl.sum(tl.where(o_place == place, token_of(b_keys), 0), 0)
    return tl.where(unknown | (count > known), UNDECIDED, token)


@triton.jit
def decide_kernel(
    p_logits,
    p_keys,
    p_masses,
    p_candidates,
    p_counts,
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
    CANDIDATES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The token of each row, -1 where the largest logit is not finite, or `UNDECIDED`. One program for each row."""
    i_row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(p_temperature + i_row)
    top_k = tl.load(p_top_k + i_row)
    top_p = tl.load(p_top_p + i_row)
    min_p = tl.load(p_min_p + i_row)
    uniform = tl.load(p_uniform + i_row)
    key = largest_of(p_keys, i_row, STRETCHES, BLOCK_STRETCHES)
    best = logit_of(key)
    coldness = coldness_of(temperature)
    p_masses += i_row * STRETCHES
    token = token_of(key)
    if tl.abs(best) < float("inf"):
        if temperature > 0.0:
            if is_filtered(top_k, top_p, min_p):
                token = _draw_among_candidates(
                    p_candidates + i_row * CANDIDATES,
                    p_masses,
                    tl.load(p_counts + 2 * i_row),
                    tl.load(p_counts + 2 * i_row + 1),
                    best,
                    coldness,
                    top_k,
                    top_p,
                    min_p,
                    uniform,
                    STRETCHES,
                    BLOCK_STRETCHES,
                    CANDIDATES,
                )
            else:
                p_row = p_logits + i_row * row_stride
                token = _draw_among_all(p_row, p_masses, best, coldness, uniform, vocab, STRETCHES, BLOCK_STRETCHES, BLOCK).to(
                    tl.int64
                )
    else:
        token = tl.full([], -1, tl.int64)
    tl.store(p_tokens + i_row, token)
