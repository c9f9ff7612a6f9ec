"""Merging what the splits of a row computed: partial softmax sums and averages, in the order of the splits."""

import triton
import triton.language as tl

from kernels.gpu.paged import at_least_finite


@triton.jit
def first_key(position, window, WINDOWED: tl.constexpr):
    """The first key that a row at a position sees."""
    if WINDOWED:
        return tl.maximum(position - window + 1, 0)
    return 0


@triton.jit(do_not_specialize=["s_chosen", "splits"])
def merge_splits_kernel(
    p_positions,
    p_chosen,
    p_max,
    p_sum,
    p_acc,
    p_out,
    s_chosen,
    splits,
    window,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    WINDOWED: tl.constexpr,
    SPLIT: tl.constexpr,
    PLACES: tl.constexpr,
):
    """One program for each row and head."""
    i_row = tl.program_id(0).to(tl.int64)
    i_head = tl.program_id(1)
    # what is there of a row: as many splits as it has keys for
    if p_chosen is None:
        position = tl.load(p_positions + i_row).to(tl.int32)
        count = tl.maximum(position, 0) // SPLIT - first_key(position, window, WINDOWED) // SPLIT + 1
    else:
        p_chosen += (i_row * (HEADS // GROUP) + i_head // GROUP) * s_chosen
        count = splits
    o_head = i_row * HEADS + i_head
    # [WIDTH]
    o_dim = tl.arange(0, WIDTH)
    m_dim = o_dim < HEAD_DIM
    b_acc = tl.zeros([WIDTH], tl.float32)
    largest = -float("inf")
    total = 0.0
    for i_start in range(0, count, PLACES):
        # [PLACES]
        o_place = i_start + tl.arange(0, PLACES)
        m_place = o_place < count
        if p_chosen is not None:
            # chosen entries have no gaps: a split is there if its first key is
            b_chosen = tl.load(p_chosen + o_place * SPLIT // BLOCK, mask=m_place, other=-1)
            m_place &= b_chosen >= 0
        o_part = o_head * splits + o_place
        b_max = tl.load(p_max + o_part, mask=m_place, other=-float("inf"))
        b_sum = tl.load(p_sum + o_part, mask=m_place, other=0.0)
        # [PLACES, WIDTH]
        o_number = o_part[:, None] * HEAD_DIM + o_dim[None, :]
        b_part = tl.load(p_acc + o_number, mask=m_place[:, None] & m_dim[None, :], other=0.0)
        new = tl.maximum(largest, tl.max(b_max, 0))
        base = at_least_finite(new)
        shrink = tl.exp2(largest - base)
        largest = new
        b_shrink = tl.exp2(b_max - base)
        total = total * shrink + tl.sum(b_sum * b_shrink, 0)
        b_acc = b_acc * shrink + tl.sum(b_part * b_shrink[:, None], 0)
    b_out = b_acc / tl.where(total > 0, total, 1.0)
    tl.store(p_out + o_head * HEAD_DIM + o_dim, b_out.to(p_out.dtype.element_ty), mask=m_dim)
