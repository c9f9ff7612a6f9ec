"""Attention of parts of prompts over a paged cache, as in FlashAttention-2 (Dao 2023, section 3).

A program takes a tile of rows and walks over the keys that they see, tile by tile. The rows are some queries times all heads
that share a KV head: each tile of keys is fetched, and codes are widened, once for the group, a short chunk still fills a tile,
and a selection of blocks, which is made for a KV head, holds for the whole tile.

A query's bits do not depend on how its prompt was cut into chunks, nor on the batch: tiles of keys lie at multiples of their
size, whatever the chunk, and a tile whose keys are hidden from a row leaves the row as it was. What could be rounded in two
ways, fused or not, is written so that it is rounded in one.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.paged import LOG2_E, at_least_finite, cached_layer, located, tanh
from kernels.gpu.tuning import tuned
from kernels.sparsity import Selection

_LIFT = 64.0
"""Scales of values are so much larger within the kernel where weights are float16: small weights times small scales are lost.
The largest scale of a float16 number's code, 65504 / 127, does not overflow."""


class _Shape(NamedTuple):
    """What is known when the kernel is compiled.

    Args:
        factor: of scores, before they are exponentiated by base 2; with a softcap it is of capped ones.
        inner: of products, within the tanh of a softcap.
        lift: of the scales of values.
        query_block: queries that a tile must not reach beyond.
        key_block: keys in a chosen block.
        most: length of a list of chosen blocks, rounded up to a power of two.
    """

    group: int
    head_dim: int
    block: int
    window: int
    factor: float
    inner: float
    softcap: float
    lift: float
    query_block: int
    key_block: int
    most: int


class _Strides(NamedTuple):
    """Between rows of queries, of results and of tables; blocks, tokens and heads of the cache; blocks and tokens of scales."""

    q: int
    out: int
    table: int
    block: int
    token: int
    head: int
    scale_block: int
    scale_token: int


class _Tile(NamedTuple):
    """What a program computes.

    Args:
        i_row: row of the first query.
        first, last: positions of the first and the last query.
        i_kv_head: whose keys are read.
        i_blocks: which list of chosen blocks is read.
        p_table: the sequence's blocks.
    """

    i_row: int
    first: int
    last: int
    i_kv_head: int
    i_blocks: int
    p_table: int


@triton.jit
def _all_tiles(tile, SHAPE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Where three stretches of tiles of keys begin and end: those cut by the window, those all rows see, those cut by a row."""
    end = tile.last // BLOCK_N + 1
    low = 0
    seen = 0
    if SHAPE.window > 0:
        low = tl.maximum(tile.first - SHAPE.window + 1, 0) // BLOCK_N
        seen = tl.minimum((tl.maximum(tile.last - SHAPE.window + 1, 0) + BLOCK_N - 1) // BLOCK_N, end)
    return low, seen, tl.maximum((tile.first + 1) // BLOCK_N, seen), end


@triton.jit
def _chosen_tiles(tile, p_blocks, most, SHAPE: tl.constexpr, BLOCK_N: tl.constexpr):
    """The same where blocks are chosen; tiles are counted along the list."""
    o_place = tl.arange(0, SHAPE.most)
    # [most]
    b_block = tl.load(p_blocks + o_place, mask=o_place < most, other=-1)
    m_seen = (b_block >= 0) & ((b_block + 1) * SHAPE.key_block <= tile.first + 1)
    if SHAPE.window > 0:
        m_seen &= b_block * SHAPE.key_block > tile.last - SHAPE.window
    TILES: tl.constexpr = SHAPE.key_block // BLOCK_N
    # before the first that all rows see there is none, or some that the window cuts
    low = tl.min(tl.where(m_seen, o_place, SHAPE.most), 0)
    seen = tl.sum(m_seen.to(tl.int32), 0)
    low = tl.where(seen > 0, low, 0)
    return 0, low * TILES, (low + seen) * TILES, tl.sum((b_block >= 0).to(tl.int32), 0) * TILES


@triton.jit
def _fetch(p_x, o_row, m_key, head_dim: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of the cache, [BLOCK_N, BLOCK_D]."""
    o_d = tl.arange(0, BLOCK_D)
    m_d = tl.full([BLOCK_D], True, tl.int1) if head_dim == BLOCK_D else o_d < head_dim
    return tl.load(p_x + o_row[:, None] + o_d[None, :], mask=m_key[:, None] & m_d[None, :], other=0.0)


@triton.jit
def _visit(b_m, b_l, b_acc, b_q, i_key, keys, strides, tile, SHAPE: tl.constexpr, BLOCK_N: tl.constexpr, CUT: tl.constexpr):
    """Take one tile of keys. Without CUT all rows see all of it."""
    # [BLOCK_N]
    o_key = i_key + tl.arange(0, BLOCK_N)
    m_key = tl.full([BLOCK_N], True, tl.int1)
    if CUT:
        m_key = o_key <= tile.last
        if SHAPE.window > 0:
            m_key &= o_key > tile.first - SHAPE.window
    b_block, o_token = located(tile.p_table, o_key, m_key, SHAPE.block)
    o_row = b_block * strides.block + o_token * strides.token + tile.i_kv_head * strides.head
    o_scale = b_block * strides.scale_block + o_token * strides.scale_token + tile.i_kv_head
    b_k = _fetch(keys.k, o_row, m_key, SHAPE.head_dim, b_q.shape[1]).to(b_q.dtype)
    # [BLOCK_M, BLOCK_N]
    b_s = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
    if keys.k_scales is not None:
        # codes are exact in the type of queries, and a product for each key is less than one for each number
        b_s *= tl.load(keys.k_scales + o_scale, mask=m_key, other=0.0)[None, :]
    if SHAPE.softcap > 0:
        b_s = SHAPE.softcap * tanh(b_s * SHAPE.inner)
    if CUT:
        b_position = (tile.first + tl.arange(0, b_q.shape[0]) // SHAPE.group)[:, None]
        m_s = o_key[None, :] <= b_position
        if SHAPE.window > 0:
            m_s &= o_key[None, :] > b_position - SHAPE.window
        b_s = tl.where(m_s, b_s, -float("inf"))
    # [BLOCK_M]
    b_new = tl.maximum(b_m, tl.max(b_s, 1))
    b_base = at_least_finite(b_new)
    b_keep = tl.exp2((b_m - b_base) * SHAPE.factor)
    # fused here for both kinds of tiles: a compiler would do so only where nothing is masked in between
    b_p = tl.exp2(tl.fma(b_s, SHAPE.factor, -(b_base * SHAPE.factor)[:, None]))
    b_l = tl.fma(b_l, b_keep, tl.sum(b_p, 1))
    if keys.v_scales is not None:
        b_p *= (tl.load(keys.v_scales + o_scale, mask=m_key, other=0.0) * SHAPE.lift)[None, :]
    b_v = _fetch(keys.v, o_row, m_key, SHAPE.head_dim, b_q.shape[1]).to(b_q.dtype)
    b_acc = tl.dot(b_p.to(b_q.dtype), b_v, b_acc * b_keep[:, None], input_precision="ieee")
    return b_new, b_l, b_acc


@triton.jit
def _walk(state, b_q, begin, end, p_blocks, keys, strides, tile, SHAPE: tl.constexpr, BLOCK_N: tl.constexpr, CUT: tl.constexpr):
    """Visit a stretch of tiles of keys, in rising order."""
    b_m, b_l, b_acc = state
    TILES: tl.constexpr = SHAPE.key_block // BLOCK_N
    for i in range(begin, end):
        i_key = i * BLOCK_N
        if p_blocks is not None:
            i_key = tl.load(p_blocks + i // TILES) * SHAPE.key_block + i % TILES * BLOCK_N
        b_m, b_l, b_acc = _visit(b_m, b_l, b_acc, b_q, i_key, keys, strides, tile, SHAPE, BLOCK_N, CUT)
    return b_m, b_l, b_acc


@triton.jit
def _attend(state, b_q, p_blocks, most, keys, strides, tile, SHAPE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Visit all tiles of keys that some row sees."""
    if p_blocks is None:
        low, seen, cut, end = _all_tiles(tile, SHAPE, BLOCK_N)
    else:
        low, seen, cut, end = _chosen_tiles(tile, p_blocks, most, SHAPE, BLOCK_N)
    if SHAPE.window > 0:
        state = _walk(state, b_q, low, seen, p_blocks, keys, strides, tile, SHAPE, BLOCK_N, True)
    state = _walk(state, b_q, seen, cut, p_blocks, keys, strides, tile, SHAPE, BLOCK_N, False)
    return _walk(state, b_q, cut, end, p_blocks, keys, strides, tile, SHAPE, BLOCK_N, True)


@triton.jit
def _own_tile(p_table, s_table, p_starts, p_firsts, query_blocks, SHAPE: tl.constexpr, BLOCK_M: tl.constexpr):
    """What this program computes: the longest first, and those that share keys side by side."""
    QUERIES: tl.constexpr = BLOCK_M // SHAPE.group
    TILES: tl.constexpr = (SHAPE.query_block + QUERIES - 1) // QUERIES
    i_tile = tl.num_programs(0) - 1 - tl.program_id(0)
    i_kv_head = tl.program_id(1)
    i_chunk = tl.program_id(2).to(tl.int64)
    i_row = tl.load(p_firsts + i_chunk)
    i_block = i_tile // TILES
    i_query = i_block * SHAPE.query_block + i_tile % TILES * QUERIES
    end = tl.minimum(tl.load(p_firsts + i_chunk + 1) - i_row, tl.minimum(i_query + QUERIES, (i_block + 1) * SHAPE.query_block))
    start = tl.load(p_starts + i_chunk).to(tl.int32)
    return _Tile(
        (i_row + i_query).to(tl.int64),
        start + i_query,
        start + end - 1,
        i_kv_head,
        (i_chunk * query_blocks + i_block) * tl.num_programs(1) + i_kv_head,
        p_table + i_chunk * s_table,
    )


@triton.jit(do_not_specialize=["query_blocks", "most"])
def prefill_attention_kernel(
    p_q,
    p_out,
    keys,
    strides,
    p_table,
    p_starts,
    p_firsts,
    p_sinks,
    p_chosen,
    query_blocks,
    most,
    SHAPE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program for each tile of queries, KV head and chunk."""
    tile = _own_tile(p_table, strides.table, p_starts, p_firsts, query_blocks, SHAPE, BLOCK_M)
    if tile.last < tile.first:
        return
    # [BLOCK_M]: the heads of a query stand side by side
    o_query = tl.arange(0, BLOCK_M) // SHAPE.group
    o_head = tile.i_kv_head * SHAPE.group + tl.arange(0, BLOCK_M) % SHAPE.group
    o_d = tl.arange(0, BLOCK_D)
    # [BLOCK_M, BLOCK_D]
    m_q = (o_query <= tile.last - tile.first)[:, None] & (o_d < SHAPE.head_dim)[None, :]
    o_in_row = o_head[:, None] * SHAPE.head_dim + o_d[None, :]
    o_row = (tile.i_row + o_query)[:, None]
    b_q = tl.load(p_q + o_row * strides.q + o_in_row, mask=m_q, other=0.0)
    b_m = tl.full([BLOCK_M], -float("inf"), tl.float32)
    b_l = tl.zeros([BLOCK_M], tl.float32)
    if p_sinks is not None:
        # a key without a value, before all others
        b_m = tl.load(p_sinks + o_head) * (LOG2_E / SHAPE.factor)
        b_l += 1.0
    state = b_m, b_l, tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    p_blocks = p_chosen if p_chosen is None else p_chosen + tile.i_blocks * most
    b_m, b_l, b_acc = _attend(state, b_q, p_blocks, most, keys, strides, tile, SHAPE, BLOCK_N)
    b_out = (b_acc / tl.where(b_l > 0, b_l * SHAPE.lift, 1.0)[:, None]).to(p_out.dtype.element_ty)
    tl.store(p_out + o_row * strides.out + o_in_row, b_out, mask=m_q)


def prefill_attention(
    q: torch.Tensor,
    cache: torch.Tensor,
    scales: torch.Tensor | None,
    layer: int,
    tables: torch.Tensor,
    starts: torch.Tensor,
    firsts: torch.Tensor,
    *,
    scale: float,
    longest: int,
    window: int = 0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    chosen: Selection | None = None,
) -> torch.Tensor:
    """Attend from each query of some chunks to its own sequence, whose keys are all in the cache, the chunk's own too.

    Args:
        q: [tokens, heads, head_dim] float16, bfloat16 or float32; rows may be apart. head_dim is 16 to 256 in steps of 16.
        cache: [blocks, layers, 2, block, kv_heads, head_dim] of q's type, int8 or float8_e4m3fn (from sm_89 on). block is
            16 to 128 in steps of 16.
        scales: [blocks, layers, 2, block, kv_heads] float32, by which int8 and float8_e4m3fn are multiplied, else None.
        layer: which of the cache's layers.
        tables: [chunks, entries] int32 or int64: the block of each stretch of tokens; rows may be apart. Entries before the
            first query's window and behind the last query are not read.
        starts: [chunks] int64: the position of each chunk's first query.
        firsts: [chunks + 1] int32: the row of each chunk's first query, and the number of rows. Rows that are in no chunk
            are not written.
        scale: multiplies the dot products; above 0.
        longest: no chunk has more queries.
        window: keys that a query sees, itself included; 0 is all.
        softcap: scores are softcap * tanh(score / softcap); 0 is none.
        sinks: [heads] float32: one more score in the denominator of each head's softmax (gpt-oss), or None.
        chosen: the blocks of keys that are read, of those that a query sees; None is all. A query that
            sees none of them has a result of 0.

    Returns:
        [tokens, heads, head_dim] of q's type.

    Raises:
        ValueError: a size, type or stride is not one of these.
    """
    keys, (tokens, heads, head_dim), chunks = cached_layer(q, cache, scales, layer), q.shape, len(tables)
    group = heads // cache.shape[4]
    check_chunks(tables, starts, firsts)
    _check_scores(heads, scale, longest, window, softcap, sinks)
    out = torch.empty(tokens, heads, head_dim, dtype=q.dtype, device=q.device)
    if tokens == 0 or chunks == 0:
        return out
    config = tuned("prefill_attention", q.device, head_dim=head_dim, bits=8 * q.itemsize, cache_bits=8 * cache.itemsize)
    queries = config.sizes["BLOCK_M"] // group
    if queries == 0:
        raise ValueError(f"at most {config.sizes['BLOCK_M']} heads can share a key/value head, not {group}")
    # a dense tile is a query block of its own
    query_block, key_block, blocks = queries, config.sizes["BLOCK_N"], None
    if chosen is not None:
        _check_chosen(chosen, (chunks, cache.shape[4]), longest, key_block)
        query_block, key_block, blocks = chosen.query_block, chosen.key_block, chosen.blocks
    query_blocks, most = (0, 0) if blocks is None else (blocks.shape[1], blocks.shape[3])
    shape = _Shape(
        group=group,
        head_dim=head_dim,
        block=cache.shape[3],
        window=window,
        factor=LOG2_E.value if softcap else scale * LOG2_E.value,
        inner=scale / softcap if softcap else 0.0,
        softcap=softcap,
        lift=_LIFT if q.dtype == torch.float16 and scales is not None else 1.0,
        query_block=query_block,
        key_block=key_block,
        most=triton.next_power_of_2(most),
    )
    strides = _Strides(q.stride(0), heads * head_dim, tables.stride(0), *keys.strides, *keys.scale_strides)
    grid = (triton.cdiv(longest, query_block) * triton.cdiv(query_block, queries), cache.shape[4], chunks)
    batch = (tables, starts, firsts, sinks, blocks, query_blocks, most)
    width = triton.next_power_of_2(head_dim)
    launch(prefill_attention_kernel, grid, q, out, keys, strides, *batch, config=config, SHAPE=shape, BLOCK_D=width)
    return out


def check_chunks(tables: torch.Tensor, starts: torch.Tensor, firsts: torch.Tensor) -> None:
    """Refuse tables, starts and firsts that are not as in `prefill_attention`.

    Raises:
        ValueError: a size, type or stride is another.
    """
    if tables.dim() != 2 or tables.dtype not in (torch.int32, torch.int64) or tables.stride(1) != 1:
        raise ValueError(f"tables must be [chunks, entries] int32 or int64, not {[*tables.shape]} {tables.dtype}")
    chunks = len(tables)
    if starts.shape != (chunks,) or starts.dtype != torch.int64 or not starts.is_contiguous():
        raise ValueError(f"starts must be [{chunks}] int64, not {[*starts.shape]} {starts.dtype}")
    if firsts.shape != (chunks + 1,) or firsts.dtype != torch.int32 or not firsts.is_contiguous():
        raise ValueError(f"firsts must be [{chunks + 1}] int32, not {[*firsts.shape]} {firsts.dtype}")


def _check_scores(heads: int, scale: float, longest: int, window: int, softcap: float, sinks: torch.Tensor | None) -> None:
    """Refuse numbers that attention is not defined for."""
    if scale <= 0 or softcap < 0:
        raise ValueError(f"scores with a scale of {scale} and a softcap of {softcap} are not possible")
    if longest < 1 or window < 0:
        raise ValueError(f"chunks of at most {longest} queries with a window of {window} are not possible")
    if sinks is not None and (sinks.shape != (heads,) or sinks.dtype != torch.float32 or not sinks.is_contiguous()):
        raise ValueError(f"sinks must be [{heads}] float32, not {[*sinks.shape]} {sinks.dtype}")


def _check_chosen(chosen: Selection, sizes: tuple[int, int], longest: int, tile: int) -> None:
    """Refuse a selection for other chunks and KV heads, or of blocks that tiles of keys do not fill."""
    blocks, query_blocks = chosen.blocks, triton.cdiv(longest, chosen.query_block)
    if blocks.dim() != 4 or blocks.dtype != torch.int32 or not blocks.is_contiguous():
        raise ValueError(f"chosen blocks must be contiguous, of 4 dimensions and int32, not {[*blocks.shape]} {blocks.dtype}")
    if (blocks.shape[0], blocks.shape[2]) != sizes or blocks.shape[1] < query_blocks or blocks.shape[3] == 0:
        raise ValueError(f"chosen blocks must be [{sizes[0]}, {query_blocks}, {sizes[1]}, most], not {[*blocks.shape]}")
    if chosen.key_block % tile:
        raise ValueError(f"chosen blocks must be of a multiple of {tile} keys, not {chosen.key_block}")
