"""Attention of single tokens over a paged cache.

The keys of a row are cut into splits of a fixed length, which are computed at the same time and then merged, as in
Flash-Decoding (Dao, Haziza, Massa and Sizov, 2023). How a split is computed, and in which order splits are merged, depends on
neither the batch nor the row's length: a row's bits are the same in every batch.
"""

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.merge_splits import first_key, merge_splits_kernel
from kernels.gpu.paged import LOG2_E, at_least_finite, cached_layer, located, tanh
from kernels.gpu.tuning import tuned

_ROWS = 16
"""Query heads that a program takes: the least that tensor cores multiply."""


@triton.jit(do_not_specialize=["s_table", "s_chosen", "most", "splits"])
def attend_split_kernel(
    p_q,
    p_k,
    p_v,
    p_k_scales,
    p_v_scales,
    p_table,
    p_positions,
    p_chosen,
    p_sinks,
    p_out,
    p_max,
    p_sum,
    p_acc,
    s_q,
    s_block,
    s_token,
    s_head,
    s_scale_block,
    s_scale_token,
    s_table,
    s_chosen,
    most,
    splits,
    scale,
    softcap,
    window,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    ENTRIES: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    DIRECT: tl.constexpr,
    SPLIT: tl.constexpr,
    KEYS: tl.constexpr,
):
    """One program for each row, up to ROWS heads of a KV head, and split. DIRECT writes the result, else a part of it."""
    PARTS: tl.constexpr = (GROUP + ROWS - 1) // ROWS
    i_row = tl.program_id(0).to(tl.int64)
    i_kv_head = tl.program_id(1) // PARTS
    i_place = tl.program_id(2)
    position = tl.load(p_positions + i_row).to(tl.int32)
    p_table += i_row * s_table
    # keys are walked from start to end: those of the sequence, or those of the chosen blocks, end to end
    if p_chosen is None:
        low = first_key(position, window, WINDOWED)
        start = (low // SPLIT + i_place) * SPLIT
        end = tl.minimum(start + SPLIT, position + 1)
        start = tl.maximum(start, low)
    else:
        p_chosen += (i_row * (HEADS // GROUP) + i_kv_head) * s_chosen
        start = i_place * SPLIT
        # [ENTRIES]
        o_entry = start // BLOCK + tl.arange(0, ENTRIES)
        b_chosen = tl.load(p_chosen + o_entry, mask=o_entry < most, other=-1)
        end = (start // BLOCK + tl.sum((b_chosen >= 0).to(tl.int32), 0)) * BLOCK
        end = tl.minimum(start + SPLIT, end)
    # the first split of a row is computed even where it has no keys: it says so
    if (start >= end) & (i_place > 0):
        return
    # [ROWS]
    o_in_group = tl.program_id(1) % PARTS * ROWS + tl.arange(0, ROWS)
    m_row = o_in_group < GROUP
    o_head = i_kv_head * GROUP + o_in_group
    # [WIDTH]
    o_dim = tl.arange(0, WIDTH)
    m_dim = o_dim < HEAD_DIM
    # [ROWS, WIDTH]
    m_out = m_row[:, None] & m_dim[None, :]
    b_q = tl.load(p_q + i_row * s_q + o_head[:, None] * HEAD_DIM + o_dim[None, :], mask=m_out, other=0.0)
    b_max = tl.full([ROWS], -float("inf"), tl.float32)
    b_sum = tl.zeros([ROWS], tl.float32)
    b_acc = tl.zeros([ROWS, WIDTH], tl.float32)
    if p_sinks is not None:
        # the sink is a key without a value, before all others
        b_sink = tl.load(p_sinks + o_head, mask=m_row, other=0.0) * LOG2_E
        b_max = tl.where(i_place == 0, b_sink, b_max)
        b_sum = tl.where(i_place == 0, 1.0, b_sum)
    for i_start in range(start, end, KEYS):
        # [KEYS]
        o_key = i_start + tl.arange(0, KEYS)
        m_key = o_key < end
        if p_chosen is not None:
            b_entry = tl.load(p_chosen + o_key // BLOCK, mask=m_key, other=0)
            o_key = b_entry * BLOCK + o_key % BLOCK
            m_key &= (o_key <= position) & (o_key >= first_key(position, window, WINDOWED))
        b_block, o_token = located(p_table, o_key, m_key, BLOCK)
        # [KEYS, WIDTH]
        o_number = (b_block * s_block + o_token * s_token + i_kv_head * s_head)[:, None] + o_dim[None, :]
        m_number = m_key[:, None] & m_dim[None, :]
        b_k = tl.load(p_k + o_number, mask=m_number, other=0.0).to(b_q.dtype)
        # [ROWS, KEYS]
        b_score = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * scale
        if p_k_scales is not None:
            # codes are exact in the type of the queries, and one product for each key is less than one for each number
            o_scale = b_block * s_scale_block + o_token * s_scale_token + i_kv_head
            b_score *= tl.load(p_k_scales + o_scale, mask=m_key, other=0.0)[None, :]
        if CAPPED:
            b_score = softcap * tanh(b_score)
        b_score = tl.where(m_key[None, :], b_score, -float("inf"))
        # [ROWS]
        b_new = tl.maximum(b_max, tl.max(b_score, 1))
        b_base = at_least_finite(b_new)
        b_shrink = tl.exp2(b_max - b_base)
        b_max = b_new
        # [ROWS, KEYS]
        b_p = tl.exp2(b_score - b_base[:, None])
        b_sum = b_sum * b_shrink + tl.sum(b_p, 1)
        b_acc *= b_shrink[:, None]
        b_v = tl.load(p_v + o_number, mask=m_number, other=0.0).to(b_q.dtype)
        if p_v_scales is not None:
            b_scale = tl.load(p_v_scales + o_scale, mask=m_key, other=0.0)
            if b_q.dtype == tl.float16:
                # small scales times small weights vanish in float16: the largest scale is left to the product's result
                largest = tl.max(b_scale, 0)
                b_p *= (b_scale / tl.where(largest > 0, largest, 1.0))[None, :]
                b_acc += tl.dot(b_p.to(b_q.dtype), b_v, input_precision="ieee") * largest
            else:
                b_p *= b_scale[None, :]
                b_acc = tl.dot(b_p.to(b_q.dtype), b_v, b_acc, input_precision="ieee")
        else:
            b_acc = tl.dot(b_p.to(b_q.dtype), b_v, b_acc, input_precision="ieee")
    if DIRECT:
        b_out = b_acc / tl.where(b_sum > 0, b_sum, 1.0)[:, None]
        o_out = (i_row * HEADS + o_head)[:, None] * HEAD_DIM + o_dim[None, :]
        tl.store(p_out + o_out, b_out.to(p_out.dtype.element_ty), mask=m_out)
    else:
        o_part = (i_row * HEADS + o_head) * splits + i_place
        tl.store(p_max + o_part, b_max, mask=m_row)
        tl.store(p_sum + o_part, b_sum, mask=m_row)
        tl.store(p_acc + o_part[:, None] * HEAD_DIM + o_dim[None, :], b_acc, mask=m_out)


def decode_attention(
    q: torch.Tensor,
    cache: torch.Tensor,
    scales: torch.Tensor | None,
    layer: int,
    table: torch.Tensor,
    positions: torch.Tensor,
    *,
    scale: float,
    longest: int,
    window: int = 0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    chosen: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend from each row to its own sequence, whose keys are all in the cache, the row's own too.

    A row's result depends on nothing else in the batch. A position of -1 makes a row of padding, whose result is 0. Takes
    4 * rows * heads * (head_dim + 2) bytes of memory for each split of a few hundred keys, if there is more than one.

    Args:
        q: [rows, heads, head_dim] float16, bfloat16 or float32; rows may be apart. head_dim is 16 to 256 in steps of 16.
        cache: [blocks, layers, 2, block, kv_heads, head_dim] of q's type, int8 or float8_e4m3fn (from sm_89 on). block is
            16 to 128 in steps of 16.
        scales: [blocks, layers, 2, block, kv_heads] float32, by which int8 and float8_e4m3fn are multiplied, else None.
        layer: which of the cache's layers.
        table: [rows, entries] int32 or int64: the block of each stretch of tokens; rows may be apart. Entries before the
            window and behind the row's position are not read.
        positions: [rows] int64: each row sees the keys from 0 to this one.
        scale: multiplies the dot products.
        longest: more than any position.
        window: keys that a row sees, its own included; 0 is all.
        softcap: scores are softcap * tanh(score / softcap); 0 is none.
        sinks: [heads] float32: one more score in the denominator of each head's softmax (gpt-oss), or None.
        chosen: [rows, kv_heads, most] int32: which entries of the table are read, rising, then -1; None is all.

    Returns:
        [rows, heads, head_dim] of q's type.

    Raises:
        ValueError: a size, type or stride is not one of these.
    """
    keys, (rows, heads, head_dim) = cached_layer(q, cache, scales, layer), q.shape
    block, kv_heads = cache.shape[3:5]
    _check(q, kv_heads, table, positions, longest, window, softcap, sinks, chosen)
    out = torch.empty(rows, heads, head_dim, dtype=q.dtype, device=q.device)
    if rows == 0:
        return out
    config = tuned("decode_attention", q.device, head_dim=head_dim, kv_heads=kv_heads, bits=8 * cache.dtype.itemsize)
    split = config.sizes["SPLIT"]
    most, s_chosen = (0, 0) if chosen is None else (chosen.shape[2], chosen.stride(1))
    if chosen is not None:
        splits = triton.cdiv(min(most, triton.cdiv(longest, block)) * block, split)
    elif window:
        # a window lies across at most so many
        splits = min(triton.cdiv(longest, split), (window + split - 2) // split + 1)
    else:
        splits = triton.cdiv(longest, split)
    direct = splits == 1
    parts = None if direct else torch.empty(rows, heads, splits, head_dim, dtype=torch.float32, device=q.device)
    sums = None if direct else torch.empty(2, rows, heads, splits, dtype=torch.float32, device=q.device)
    largest, total = (None, None) if sums is None else sums.unbind()
    shape = {
        "HEADS": heads,
        "GROUP": heads // kv_heads,
        "HEAD_DIM": head_dim,
        "BLOCK": block,
        "WIDTH": triton.next_power_of_2(head_dim),
        "WINDOWED": window > 0,
    }
    launch(
        attend_split_kernel,
        (rows, kv_heads * triton.cdiv(heads // kv_heads, _ROWS), splits),
        q,
        *keys,
        table,
        positions,
        chosen,
        sinks,
        out,
        largest,
        total,
        parts,
        q.stride(0),
        *keys.strides,
        *keys.scale_strides,
        table.stride(0),
        s_chosen,
        most,
        splits,
        scale / softcap if softcap else scale * LOG2_E.value,
        softcap * LOG2_E.value,
        window,
        config=config,
        **shape,
        ROWS=_ROWS,
        ENTRIES=triton.next_power_of_2(triton.cdiv(split, block) + 1),
        CAPPED=softcap > 0,
        DIRECT=direct,
    )
    if not direct:
        merging = tuned("merge_splits", q.device)
        launch(
            merge_splits_kernel,
            (rows, heads),
            positions,
            chosen,
            largest,
            total,
            parts,
            out,
            s_chosen,
            splits,
            window,
            config=merging,
            **shape,
            SPLIT=split,
        )
    return out


def _check(
    q: torch.Tensor,
    kv_heads: int,
    table: torch.Tensor,
    positions: torch.Tensor,
    longest: int,
    window: int,
    softcap: float,
    sinks: torch.Tensor | None,
    chosen: torch.Tensor | None,
) -> None:
    """Refuse what is not as in `decode_attention`; the cache is checked elsewhere."""
    rows, heads, _ = q.shape
    if table.dim() != 2 or len(table) != rows or table.dtype not in (torch.int32, torch.int64) or table.stride(1) != 1:
        raise ValueError(f"the table must be [{rows}, entries] int32 or int64, not {[*table.shape]} {table.dtype}")
    if positions.shape != (rows,) or positions.dtype != torch.int64 or not positions.is_contiguous():
        raise ValueError(f"positions must be [{rows}] int64, not {[*positions.shape]} {positions.dtype}")
    if longest < 1 or window < 0 or softcap < 0:
        raise ValueError(f"at most {longest} keys with a window of {window} and a soft cap of {softcap} are not possible")
    if sinks is not None and (sinks.shape != (heads,) or sinks.dtype != torch.float32 or not sinks.is_contiguous()):
        raise ValueError(f"sinks must be [{heads}] float32, not {[*sinks.shape]} {sinks.dtype}")
    if chosen is None:
        return
    sizes = chosen.shape[:2] == (rows, kv_heads) and chosen.dim() == 3 and chosen.shape[2] > 0
    if not sizes or chosen.dtype != torch.int32 or not chosen.is_contiguous():
        raise ValueError(f"chosen must be contiguous [{rows}, {kv_heads}, most] int32, not {[*chosen.shape]} {chosen.dtype}")
