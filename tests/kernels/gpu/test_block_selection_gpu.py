"""Which blocks are chosen in the interpreter, against the definition; and what a selection forms and saves."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.gpu.block_selection import select_blocks, select_for_rows
from kernels.gpu.page_bounds import write_bounds
from kernels.gpu.prefill_attention import prefill_attention
from kernels.sparsity import Budget, Selection, always_read, always_read_at_most, attend_chosen, bounds, choose
from tests.kernels.gpu.chunks import F16, F32, FP8, INT8, LAYER, LIMITS, Case, Chunks, error

SIZES: dict[str, Any] = {"query_block": 16, "key_block": 32, "probe": 5}
BUDGET = Budget(coverage=0.8, at_least=4, at_most=100)


def pages_of(chunks: Chunks) -> torch.Tensor:
    """Bounds of all blocks that are full; all others are not numbers."""
    cache, block = chunks.cache, chunks.case.block
    pages = torch.full((*cache.shape[:2], 2, *cache.shape[4:]), torch.nan, dtype=chunks.case.dtype)
    for row, (start, count) in enumerate(chunks.case.spans):
        write_bounds(cache, chunks.scales, LAYER, chunks.tables[row, : (start + count) // block].contiguous(), pages)
    return pages


def select(chunks: Chunks, pages: torch.Tensor, **options: Any) -> Selection:
    """Call the operator with everything that it needs."""
    context = max(start + count for start, count in chunks.case.spans)
    given = {"scale": 1.0, "longest": chunks.longest, "context": context, "block": chunks.case.block, "budget": BUDGET}
    batch = (chunks.tables, chunks.starts, chunks.firsts)
    return select_blocks(chunks.q, pages, LAYER, *batch, **{**given, **SIZES, **options})


def defined(
    chunks: Chunks, budget: Budget, scale: float, query_block: int, key_block: int, probe: int
) -> dict[tuple[int, int, int], list[int]]:
    """What is to be chosen by each (chunk, query block, KV head)."""
    case, chosen = chunks.case, {}
    for chunk, (start, count) in enumerate(case.spans):
        _, k, _ = chunks.keys(chunk)
        full = len(k) // case.block
        paged = k[: full * case.block].unflatten(0, (full, case.block))
        low, high = paged.amin(1), paged.amax(1)
        for i, query in enumerate(range(0, count, query_block)):
            first, last = start + query, start + min(query + query_block, count) - 1
            row = int(chunks.firsts[chunk]) + last - start + 1
            q = chunks.q[max(row - probe, row - (last - first + 1)) : row].float()
            newest = always_read(first, last, key_block)
            by_page = scale * bounds(q, low, high)[:, : newest * key_block // case.block]
            scores = by_page.unflatten(1, (newest, key_block // case.block)).logsumexp(2)
            for head in range(case.kv_heads):
                chosen[chunk, i, head] = choose(scores[head], first, last, key_block, budget)
    return chosen


def listed(selection: Selection) -> dict[tuple[int, int, int], list[int]]:
    """The same of what was chosen; lists must end with nothing but -1."""
    lists = {}
    for chunk, by_block in enumerate(selection.blocks.tolist()):
        for i, by_head in enumerate(by_block):
            for head, blocks in enumerate(by_head):
                kept = [block for block in blocks if block != -1]
                assert blocks == kept + [-1] * (len(blocks) - len(kept))
                if kept:
                    lists[chunk, i, head] = kept
    return lists


@pytest.mark.parametrize(("dtype", "stored"), [(F32, F32), (F16, F16), (F16, INT8), (F32, FP8)])
@pytest.mark.parametrize(("block", "head_dim", "sign"), [(16, 64, 1), (48, 80, 1), (48, 80, -1)])
def test_bounds_are_the_smallest_and_the_largest(
    dtype: torch.dtype, stored: torch.dtype, block: int, head_dim: int, sign: int
) -> None:
    chunks = Chunks(Case(((0, 100), (0, 17)), kv_heads=4, dtype=dtype, stored=stored, block=block, head_dim=head_dim))
    # All of one sign: a 0 that is no key's would be seen.
    chunks.cache = (sign * chunks.cache.float().abs()).to(stored)
    pages = pages_of(chunks)
    _, k, _ = chunks.keys(0)
    full = 100 // block
    paged, found = k[: full * block].unflatten(0, (full, block)), pages[chunks.tables[0, :full], LAYER]
    assert torch.equal(found[:, 0], paged.amin(1).to(dtype))
    assert torch.equal(found[:, 1], paged.amax(1).to(dtype))
    assert pages[chunks.tables[0, full], LAYER].isnan().all()
    assert pages[:, [0, 2]].isnan().all()


def test_padding_has_no_bounds() -> None:
    chunks = Chunks(Case(((0, 32),)))
    pages = torch.full((chunks.cache.shape[0], 3, 2, 2, 64), torch.nan)
    write_bounds(chunks.cache, None, LAYER, torch.tensor([-1, int(chunks.tables[0, 0]), -1]), pages)
    assert int((~pages.isnan()).sum()) == 2 * 2 * 64
    write_bounds(chunks.cache, None, LAYER, torch.tensor([], dtype=torch.int64), pages)


def test_a_bound_is_never_exceeded() -> None:
    q, k = torch.randn(7, 6, 32), torch.randn(5, 16, 2, 32)
    products = torch.einsum("rkgd,ptkd->ptkrg", q.unflatten(1, (2, 3)), k)
    assert bool((bounds(q, k.amin(1), k.amax(1)) + 1e-5 >= products.amax(1).mean((2, 3)).T).all())


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block", "scale"),
    [(4, 2, 64, 16, 0.05), (3, 1, 80, 16, 0.3), (2, 2, 64, 32, 0.3), (4, 1, 256, 16, 0.1)],
)
def test_the_definition_is_followed(heads: int, kv_heads: int, head_dim: int, block: int, scale: float) -> None:
    spans = ((300, 20), (0, 1), (63, 17))
    chunks = Chunks(Case(spans, heads=heads, kv_heads=kv_heads, head_dim=head_dim, block=block))
    found = listed(select(chunks, pages_of(chunks), scale=scale))
    assert found == defined(chunks, BUDGET, scale, **SIZES)


@pytest.mark.parametrize(
    "budget",
    [
        Budget(coverage=0.0, at_least=1, at_most=9),
        Budget(coverage=0.5, at_least=1, at_most=9),
        Budget(coverage=0.99, at_least=1, at_most=7),
        Budget(coverage=1.0, at_least=1, at_most=1000),
        Budget(coverage=0.2, at_least=6, at_most=9),
        Budget(coverage=0.2, at_least=1, at_most=12, support=0.7),
    ],
)
def test_a_budget_is_kept(budget: Budget) -> None:
    chunks = Chunks(Case(((400, 33),), heads=2, kv_heads=1))
    sizes = {"query_block": 32, "key_block": 16, "probe": 32}
    selection = select(chunks, pages_of(chunks), budget=budget, scale=0.1, **sizes)
    assert selection.blocks.shape[3] == min(budget.at_most, 28)
    assert listed(selection) == defined(chunks, budget, 0.1, **sizes)
    if budget.coverage == 1:
        assert listed(selection)[0, 1, 0] == list(range(28))


def test_equal_blocks_are_taken_from_the_first_on() -> None:
    chunks = Chunks(Case(((320, 16),)))
    chunks.cache[:] = 1.0
    # The first of ten old blocks is read anyhow: a tenth of what is to be covered.
    selection = select(chunks, pages_of(chunks), budget=Budget(coverage=0.35, at_least=1, at_most=11))
    assert listed(selection)[0, 0, 0] == [0, 1, 2, 3, 9, 10]


def test_a_distribution_of_which_one_block_is_all() -> None:
    chunks = Chunks(Case(((320, 16),), heads=2))
    chunks.q[:] = 1.0
    chunks.cache[chunks.tables[0, 8:10]] *= 1e3
    chunks.cache[chunks.tables[0, 8:10]] += 1e3
    selection = select(chunks, pages_of(chunks), budget=Budget(coverage=0.9, at_least=1, at_most=11))
    assert listed(selection)[0, 0, 0] == [0, 4, 9, 10]


def test_single_tokens_choose_entries_of_their_table() -> None:
    chunks = Chunks(Case(((150, 1), (3, 1), (99, 1), (40, 1))))
    pages, budget = pages_of(chunks), Budget(coverage=0.7, at_least=1, at_most=8)
    chunks.starts[3] = -1
    options: dict[str, Any] = {"scale": 0.1, "context": 151, "block": 16, "budget": budget}
    chosen = select_for_rows(chunks.q, pages, LAYER, chunks.tables, chunks.starts, **options)
    assert chosen.shape == (4, 2, 8)
    assert chosen.is_contiguous()
    assert bool((chosen[3] == -1).all())
    expected = defined(chunks, budget, 0.1, query_block=1, key_block=16, probe=1)
    for (row, _, head), blocks in expected.items():
        if row != 3:
            assert [block for block in chosen[row, head].tolist() if block >= 0] == blocks
    alone = select_for_rows(chunks.q[2:3], pages, LAYER, chunks.tables[2:3], chunks.starts[2:3], **options)
    assert torch.equal(alone[0], chosen[2])


def test_attention_reads_what_was_chosen() -> None:
    chunks = Chunks(Case(((200, 40),)))
    selection = select(chunks, pages_of(chunks), scale=0.2, budget=Budget(coverage=0.6, at_least=4, at_most=6))
    out = prefill_attention(
        chunks.q,
        chunks.cache,
        None,
        LAYER,
        chunks.tables,
        chunks.starts,
        chunks.firsts,
        scale=0.2,
        longest=40,
        chosen=selection,
    )
    _, k, v = chunks.keys(0)
    read = (selection.blocks[0].repeat_interleave(16, 0)[:40, ..., None] == torch.arange(240) // 32).any(2)
    visible = read & (torch.arange(240) <= torch.arange(200, 240)[:, None])[:, None]
    assert error(out, attend_chosen(chunks.q.contiguous(), k, v, visible, scale=0.2)) < LIMITS[F32]


def test_what_is_formed_and_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    start, count, heads, kv_heads, dim = 960, 64, 2, 1, 64
    chunks = Chunks(Case(((start, count),), heads=heads, kv_heads=kv_heads))
    pages, budget = pages_of(chunks), Budget(coverage=0.5, at_least=4, at_most=8)
    empty, made = torch.empty, []
    monkeypatch.setattr(torch, "empty", lambda *size, **options: made.append(math.prod(size)) or empty(*size, **options))
    selection = select(chunks, pages, scale=0.3, budget=budget, query_block=32, key_block=32, probe=16)
    monkeypatch.undo()
    query_blocks, key_blocks = count // 32, (start + count) // 32
    scores, pooled = query_blocks * key_blocks * kv_heads, query_blocks * kv_heads * 2 * dim
    # Nothing but a score for each pair of blocks, the queries that speak for a block, and the lists.
    assert sorted(made) == sorted([scores, pooled, query_blocks * kv_heads * 8])
    visited = int((selection.blocks >= 0).sum())
    dense = kv_heads * sum(always_read(start + i, start + i + 31, 32) + 2 for i in range(0, count, 32))
    assert 4 * query_blocks * kv_heads <= visited <= 8 * query_blocks * kv_heads
    assert dense == kv_heads * (31 + 32)
    # Products of 32 queries of a group's heads with 32 keys and their values, against two for each page of 16 keys.
    flops = 4 * (32 * heads // kv_heads) * 32 * dim
    spent = visited * flops + scores * (32 // 16) * 2 * 2 * dim
    assert spent < 0.3 * dense * flops
    # Keys and values of a block, against two rows for each page.
    block_bytes = 2 * 32 * dim * 4
    assert visited * block_bytes + scores * (32 // 16) * 2 * dim * 4 < 0.4 * dense * block_bytes


def test_what_is_always_read_is_the_newest() -> None:
    assert [always_read(first, first + 127, 128) for first in (0, 1, 128, 1280)] == [0, 0, 0, 9]
    for first in range(60):
        for query_block in (1, 7, 16, 40):
            last = first + query_block - 1
            newest = always_read(first, last, 16)
            assert newest <= max(0, last // 16 - 1)
            assert newest * 16 <= first
            assert last // 16 - newest + 1 + (newest > 0) <= always_read_at_most(query_block, 16)


def test_what_is_not_possible_is_refused() -> None:
    chunks = Chunks(Case(((40, 10),)))
    pages = pages_of(chunks)
    for options, reason in [
        ({"longest": 0}, "at most 0 queries"),
        ({"context": 0}, "before position 0"),
        ({"scale": -1.0}, "above 0, not -1.0"),
        ({"key_block": 24}, "24 keys do not consist of blocks of 16"),
        ({"probe": 17}, "17 queries of blocks of 16"),
        ({"budget": replace(BUDGET, at_most=2, at_least=1)}, "2 blocks are too few: up to 3"),
    ]:
        with pytest.raises(ValueError, match=reason):
            select(chunks, pages, **options)
    with pytest.raises(ValueError, match="4 heads of 64 cannot share 3 heads of 64"):
        select(chunks, torch.zeros(4, 3, 2, 3, 64))
    with pytest.raises(ValueError, match="float16 bounds"):
        select(chunks, pages.half())
    with pytest.raises(ValueError, match="layer 1 is not one of 1"):
        select(chunks, pages[:, :1])
    with pytest.raises(ValueError, match="bounds of a cache"):
        write_bounds(chunks.cache, None, LAYER, chunks.tables[0], pages[:, :2])
    with pytest.raises(ValueError, match="layer 3 is not one of 3"):
        write_bounds(chunks.cache, None, 3, chunks.tables[0], pages)
    with pytest.raises(ValueError, match="blocks must be"):
        write_bounds(chunks.cache, None, LAYER, chunks.tables, pages)
    for coverage, at_least, support in ((-0.1, 1, 0.0), (1.1, 1, 0.0), (0.5, 0, 0.0), (0.5, 10, 0.0), (0.5, 1, math.inf)):
        with pytest.raises(ValueError, match=r"coverage|blocks|support"):
            Budget(coverage=coverage, at_least=at_least, at_most=9, support=support)
