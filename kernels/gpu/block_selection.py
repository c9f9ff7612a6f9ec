"""Choosing which blocks of keys are read, without multiplying queries with keys. See `kernels.sparsity`.

The bound of a page is q+ . high + q- . low, where q+ and q- are a query's positive and its negative numbers. That is linear in
them, so the bounds of many queries and heads are summed by summing those first: a score is formed once for each block of
queries, block of keys and KV head, and never for a query and a key.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.paged import LOG2_E, PLAIN_TYPES, located
from kernels.gpu.prefill_attention import check_chunks
from kernels.gpu.tuning import tuned
from kernels.sparsity import Budget, Selection, always_read_at_most


class _Shape(NamedTuple):
    """What is known when the kernels are compiled."""

    group: int
    kv_heads: int
    head_dim: int
    block: int
    query_block: int
    key_block: int
    probe: int


class _Batch(NamedTuple):
    """The chunks, for the kernels."""

    tables: torch.Tensor
    table_stride: int
    starts: torch.Tensor
    firsts: torch.Tensor


@triton.jit
def _extent(batch, i_chunk, o_block, SHAPE: tl.constexpr):
    """Of query blocks: the first of the newest key blocks, and how many they see; 0 where there is no such query block."""
    start = tl.load(batch.starts + i_chunk).to(tl.int32)
    count = tl.load(batch.firsts + i_chunk + 1) - tl.load(batch.firsts + i_chunk)
    o_first = start + o_block * SHAPE.query_block
    o_last = start + tl.minimum((o_block + 1) * SHAPE.query_block, count) - 1
    m_block = (o_first <= o_last) & (start >= 0)
    # as in kernels.sparsity.always_read
    o_newest = tl.minimum(o_last // SHAPE.key_block - 1, o_first // SHAPE.key_block)
    return tl.where(m_block, tl.maximum(o_newest, 0), 0), tl.where(m_block, o_last // SHAPE.key_block + 1, 0)


@triton.jit(do_not_specialize=["query_blocks"])
def pool_kernel(p_q, p_out, q_stride, batch, query_blocks, SHAPE: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr):
    """Average q+ and q- over the last queries of a block and the heads of a group; one program for each block and KV head."""
    i_block, i_kv_head, i_chunk = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    i_row = tl.load(batch.firsts + i_chunk)
    count = tl.load(batch.firsts + i_chunk + 1) - i_row
    end = tl.minimum((i_block + 1) * SHAPE.query_block, count)
    begin = tl.maximum(i_block * SHAPE.query_block, end - SHAPE.probe)
    if begin >= end:
        return
    o_d = tl.arange(0, BLOCK_D)
    b_plus = tl.zeros([BLOCK_D], tl.float32)
    b_minus = tl.zeros([BLOCK_D], tl.float32)
    for i in range(begin * SHAPE.group, end * SHAPE.group, BLOCK_R):
        # [BLOCK_R]: the heads of a query stand side by side
        o_r = i + tl.arange(0, BLOCK_R)
        o_q = (i_row + o_r // SHAPE.group).to(tl.int64) * q_stride
        o_q += (i_kv_head * SHAPE.group + o_r % SHAPE.group) * SHAPE.head_dim
        m_q = (o_r < end * SHAPE.group)[:, None] & (o_d < SHAPE.head_dim)[None, :]
        # [BLOCK_R, BLOCK_D]
        b_q = tl.load(p_q + o_q[:, None] + o_d[None, :], mask=m_q, other=0.0).to(tl.float32)
        b_plus += tl.sum(tl.maximum(b_q, 0.0), 0)
        b_minus += tl.sum(tl.minimum(b_q, 0.0), 0)
    p_out += ((i_chunk * query_blocks + i_block) * SHAPE.kv_heads + i_kv_head) * 2 * SHAPE.head_dim + o_d
    rows = ((end - begin) * SHAPE.group).to(tl.float32)
    tl.store(p_out, (b_plus / rows).to(p_out.dtype.element_ty), mask=o_d < SHAPE.head_dim)
    tl.store(p_out + SHAPE.head_dim, (b_minus / rows).to(p_out.dtype.element_ty), mask=o_d < SHAPE.head_dim)


@triton.jit
def _rows(p_x, o_row, m_row, head_dim: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of a head's numbers, [rows, BLOCK_D]."""
    o_d = tl.arange(0, BLOCK_D)
    return tl.load(p_x + o_row[:, None] + o_d[None, :], mask=m_row[:, None] & (o_d < head_dim)[None, :], other=0.0)


@triton.jit(do_not_specialize=["query_blocks", "key_blocks"])
def score_kernel(
    p_pooled,
    pages,
    p_scores,
    batch,
    scale,
    query_blocks,
    key_blocks,
    SHAPE: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Logarithms to base 2 of the sums of exp2(bound) over the pages of each key block before the newest."""
    PAGES: tl.constexpr = SHAPE.key_block // SHAPE.block
    p_low, p_high, page_stride = pages
    i_kv_head, i_chunk = tl.program_id(1) % SHAPE.kv_heads, tl.program_id(2).to(tl.int64)
    o_query = tl.program_id(1) // SHAPE.kv_heads * BLOCK_Q + tl.arange(0, BLOCK_Q)
    o_key = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    b_newest = _extent(batch, i_chunk, o_query, SHAPE)[0]
    newest = tl.max(b_newest, 0)
    if tl.program_id(0) * BLOCK_K >= newest:
        return
    m_key = o_key < newest
    o_pooled = ((i_chunk * query_blocks + o_query) * SHAPE.kv_heads + i_kv_head) * 2 * SHAPE.head_dim
    b_plus = _rows(p_pooled, o_pooled, b_newest > 0, SHAPE.head_dim, BLOCK_D)
    b_minus = _rows(p_pooled + SHAPE.head_dim, o_pooled, b_newest > 0, SHAPE.head_dim, BLOCK_D)
    # [BLOCK_Q, BLOCK_K]
    b_m = tl.full([BLOCK_Q, BLOCK_K], -float("inf"), tl.float32)
    b_l = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
    for i in range(PAGES):
        o_first = (o_key * PAGES + i) * SHAPE.block
        b_block = located(batch.tables + i_chunk * batch.table_stride, o_first, m_key, SHAPE.block)[0]
        o_page = b_block * page_stride + i_kv_head * SHAPE.head_dim
        b_s = tl.dot(b_plus, tl.trans(_rows(p_high, o_page, m_key, SHAPE.head_dim, BLOCK_D)), input_precision="ieee")
        b_s = tl.dot(b_minus, tl.trans(_rows(p_low, o_page, m_key, SHAPE.head_dim, BLOCK_D)), b_s, input_precision="ieee")
        b_s *= scale
        b_new = tl.maximum(b_m, b_s)
        b_l = b_l * tl.exp2(b_m - b_new) + tl.exp2(b_s - b_new)
        b_m = b_new
    o_score = ((i_chunk * query_blocks + o_query) * SHAPE.kv_heads + i_kv_head)[:, None] * key_blocks + o_key[None, :]
    tl.store(p_scores + o_score, b_m + tl.log2(b_l), mask=o_key[None, :] < b_newest[:, None])


@triton.jit
def _threshold(b_rank, b_weight, wanted):
    """The largest rank so that all of this and of higher ranks weigh `wanted` or more; 0 if everything weighs less."""
    rank = 0
    for i in range(31):
        candidate = rank | (1 << (30 - i))
        weight = tl.sum(tl.where(b_rank >= candidate, b_weight, 0.0), 0)
        rank = tl.where(weight >= wanted, candidate, rank)
    return rank


@triton.jit
def _fewest(b_rank, b_weight, end, coverage):
    """How many blocks, the highest first, weigh `coverage` or more together."""
    rank = _threshold(b_rank, b_weight, coverage)
    weight = tl.sum(tl.where(b_rank > rank, b_weight, 0.0), 0)
    # of blocks that weigh the same, only as many as are needed
    each = tl.max(tl.where(b_rank == rank, b_weight, 0.0), 0)
    above = tl.sum((b_rank > rank).to(tl.int32), 0)
    equal = tl.sum((b_rank == rank).to(tl.int32), 0)
    more = tl.minimum(tl.ceil((coverage - weight) / tl.maximum(each, 1e-30)), equal.to(tl.float32)).to(tl.int32)
    return tl.where((coverage >= 1) | (rank == 0), end, above + more)


@triton.jit(do_not_specialize=["query_blocks", "key_blocks", "most"])
def choose_kernel(
    p_scores,
    p_out,
    batch,
    coverage,
    at_least,
    at_most,
    support,
    query_blocks,
    key_blocks,
    most,
    SHAPE: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One program for each query block and KV head."""
    i_list = (tl.program_id(2).to(tl.int64) * query_blocks + tl.program_id(0)) * SHAPE.kv_heads + tl.program_id(1)
    newest, end = _extent(batch, tl.program_id(2).to(tl.int64), tl.program_id(0), SHAPE)
    # [BLOCK_K]
    o_key = tl.arange(0, BLOCK_K)
    b_score = tl.load(p_scores + i_list * key_blocks + o_key, mask=o_key < newest, other=-float("inf"))
    b_weight = tl.exp2(b_score - tl.maximum(tl.max(b_score, 0), -1e30))
    b_weight /= tl.maximum(tl.sum(b_weight, 0), 1e-30)
    m_forced = (o_key < end) & ((o_key == 0) | (o_key >= newest))
    # floats that are not negative are ordered as their bits are
    b_rank = tl.where(m_forced, 0x7FFFFFFF, tl.where(o_key < end, b_weight.to(tl.int32, bitcast=True), -1))
    entropy = -tl.sum(b_weight * tl.log2(tl.maximum(b_weight, 1e-30)), 0)
    # a distribution over nothing has no width
    wide = tl.where(newest > 0, tl.ceil(support * tl.exp2(entropy)), 0.0)
    fewest = tl.maximum(_fewest(b_rank, b_weight, end, coverage), tl.sum(m_forced.to(tl.int32), 0))
    kept = tl.minimum(tl.minimum(tl.maximum(fewest, tl.maximum(at_least, wide)), at_most), end.to(tl.float32)).to(tl.int32)
    rank = _threshold(b_rank, (b_rank >= 0).to(tl.float32), kept.to(tl.float32))
    # of blocks that rank the same, the first ones
    m_equal = b_rank == rank
    more = kept - tl.sum((b_rank > rank).to(tl.int32), 0)
    m_kept = (b_rank > rank) | (m_equal & (tl.cumsum(m_equal.to(tl.int32), 0) <= more))
    o_place = tl.cumsum(m_kept.to(tl.int32), 0) - 1
    tl.store(p_out + i_list * most + o_place, o_key, mask=m_kept)
    tl.store(p_out + i_list * most + o_key, -1, mask=(o_key >= kept) & (o_key < most))


def select_blocks(
    q: torch.Tensor,
    pages: torch.Tensor,
    layer: int,
    tables: torch.Tensor,
    starts: torch.Tensor,
    firsts: torch.Tensor,
    *,
    scale: float,
    longest: int,
    context: int,
    block: int,
    query_block: int,
    key_block: int,
    probe: int,
    budget: Budget,
) -> Selection:
    """Choose the blocks of keys that each block of queries reads, for every KV head.

    Block 0, the last two and all that hold a key of the query block itself are always read. The others are ranked by the bound
    of `kernels.sparsity.bounds`; the weight of a block is the sum of exp(scale * bound) over its pages.

    Args:
        q: [tokens, heads, head_dim] float16, bfloat16 or float32; rows may be apart.
        pages: [blocks, layers, 2, kv_heads, head_dim] of q's type, written by `summarise_blocks` for all blocks that lie
            before the queries; contiguous within a block and layer.
        layer: which of the layers.
        tables, starts, firsts: as in `kernels.gpu.prefill_attention.prefill_attention`. A chunk with a start of -1 is padding.
        scale: multiplies the dot products; above 0.
        longest: no chunk has more queries.
        context: no query is at this position or behind it.
        block: tokens in a block of the cache.
        query_block: queries that share a choice, counted from a chunk's first.
        key_block: keys that are chosen together, a multiple of `block`.
        probe: so many of the last queries of a query block speak for all; `query_block` is all of them.
        budget: how much is read.

    Raises:
        ValueError: a size, type or stride is not one of these; `budget` does not allow what is always read.
    """
    check_chunks(tables, starts, firsts)
    _check_pages(q, pages, layer, scale)
    _check_blocks(context, longest, block, query_block, key_block, probe, budget)
    kv_heads, head_dim = pages.shape[3:]
    lists = (len(tables), triton.cdiv(longest, query_block), kv_heads)
    key_blocks = triton.cdiv(context, key_block)
    chosen = torch.empty(*lists, min(budget.at_most, key_blocks), dtype=torch.int32, device=q.device)
    if len(tables) > 0:
        shape = _Shape(q.shape[1] // kv_heads, kv_heads, head_dim, block, query_block, key_block, probe)
        batch = _Batch(tables, tables.stride(0), starts, firsts)
        pooled = torch.empty(*lists, 2, head_dim, dtype=q.dtype, device=q.device)
        scores = torch.empty(*lists, key_blocks, dtype=torch.float32, device=q.device)
        _pool(q, pooled, batch, shape)
        _score(pooled, pages[:, layer], scores, batch, scale, shape)
        _choose(scores, chosen, batch, budget, shape)
    return Selection(chosen, query_block, key_block)


def select_for_rows(
    q: torch.Tensor,
    pages: torch.Tensor,
    layer: int,
    table: torch.Tensor,
    positions: torch.Tensor,
    *,
    scale: float,
    context: int,
    block: int,
    budget: Budget,
) -> torch.Tensor:
    """Choose the blocks of the cache that single tokens read; see `select_blocks`.

    Args:
        q: [rows, heads, head_dim], a chunk of one query in each row.
        positions: [rows] int64; -1 is padding.

    Returns:
        [rows, kv_heads, most] int32: entries of the table, rising, then -1.

    Raises:
        ValueError: as `select_blocks`.
    """
    firsts = torch.arange(len(q) + 1, dtype=torch.int32, device=q.device)
    blocks = {"block": block, "query_block": 1, "key_block": block, "probe": 1}
    chosen = select_blocks(
        q, pages, layer, table, positions, firsts, scale=scale, longest=1, context=context, budget=budget, **blocks
    )
    return chosen.blocks[:, 0]


def _pool(q: torch.Tensor, pooled: torch.Tensor, batch: _Batch, shape: _Shape) -> None:
    chunks, query_blocks, kv_heads = pooled.shape[:3]
    config, width = tuned("block_pool", q.device), triton.next_power_of_2(shape.head_dim)
    arguments = (q, pooled, q.stride(0), batch, query_blocks)
    launch(pool_kernel, (query_blocks, kv_heads, chunks), *arguments, config=config, SHAPE=shape, BLOCK_D=width)


def _score(pooled: torch.Tensor, pages: torch.Tensor, scores: torch.Tensor, batch: _Batch, scale: float, shape: _Shape) -> None:
    chunks, query_blocks, kv_heads, key_blocks = scores.shape
    config = tuned("block_score", pooled.device, head_dim=shape.head_dim, bits=8 * pooled.itemsize)
    tiles = triton.cdiv(query_blocks, config.sizes["BLOCK_Q"]) * kv_heads
    launch(
        score_kernel,
        (triton.cdiv(key_blocks, config.sizes["BLOCK_K"]), tiles, chunks),
        pooled,
        (*pages.unbind(1), pages.stride(0)),
        scores,
        batch,
        scale * LOG2_E.value,
        query_blocks,
        key_blocks,
        config=config,
        SHAPE=shape,
        BLOCK_D=triton.next_power_of_2(shape.head_dim),
    )


def _choose(scores: torch.Tensor, chosen: torch.Tensor, batch: _Batch, budget: Budget, shape: _Shape) -> None:
    chunks, query_blocks, kv_heads, key_blocks = scores.shape
    numbers = (budget.coverage, budget.at_least, budget.at_most, budget.support)
    launch(
        choose_kernel,
        (query_blocks, kv_heads, chunks),
        scores,
        chosen,
        batch,
        *(float(number) for number in numbers),
        query_blocks,
        key_blocks,
        chosen.shape[3],
        config=tuned("block_choice", scores.device),
        SHAPE=shape,
        BLOCK_K=triton.next_power_of_2(key_blocks),
    )


def _check_pages(q: torch.Tensor, pages: torch.Tensor, layer: int, scale: float) -> None:
    """Refuse queries and bounds that do not belong together."""
    if q.dim() != 3 or pages.dim() != 5 or pages.shape[2] != 2 or q.dtype != pages.dtype or q.dtype not in PLAIN_TYPES:
        raise ValueError(f"{[*q.shape]} {q.dtype} queries cannot be judged by {[*pages.shape]} {pages.dtype} bounds")
    if q.shape[2] != pages.shape[4] or q.shape[1] % pages.shape[3]:
        raise ValueError(f"{q.shape[1]} heads of {q.shape[2]} cannot share {pages.shape[3]} heads of {pages.shape[4]}")
    if scale <= 0:
        raise ValueError(f"bounds hold for a scale above 0, not {scale}")
    if not 0 <= layer < pages.shape[1]:
        raise ValueError(f"layer {layer} is not one of {pages.shape[1]}")
    if q.stride()[1:] != (q.shape[2], 1) or pages.stride()[3:] != (pages.shape[4], 1):
        raise ValueError(f"heads must be contiguous, not of strides {q.stride()} and {pages.stride()}")


def _check_blocks(context: int, longest: int, block: int, query_block: int, key_block: int, probe: int, budget: Budget) -> None:
    """Refuse sizes of blocks that do not fit each other, and a budget that is less than what is always read."""
    if longest < 1 or context < 1:
        raise ValueError(f"chunks of at most {longest} queries before position {context} are not possible")
    if block < 1 or key_block < 1 or key_block % block:
        raise ValueError(f"blocks of {key_block} keys do not consist of blocks of {block}")
    if not 1 <= probe <= query_block:
        raise ValueError(f"{probe} queries of blocks of {query_block} cannot speak for them")
    if budget.at_most < always_read_at_most(query_block, key_block):
        least = always_read_at_most(query_block, key_block)
        raise ValueError(f"{budget.at_most} blocks are too few: up to {least} are always read")
