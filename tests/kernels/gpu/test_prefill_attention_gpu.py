"""Attention of chunks in the interpreter, against its definition; and that a query's bits are its own."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from kernels import reference
from kernels.gpu.prefill_attention import prefill_attention
from kernels.sparsity import Selection, attend_chosen
from tests.kernels.gpu.chunks import F16, F32, FP8, INT8, LAYER, LIMITS, Case, Chunks, error

SCALE = 0.2


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are not numbers until they are written."""
    empty = torch.empty

    def poisoned(*size: Any, **options: Any) -> torch.Tensor:
        made = empty(*size, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poisoned)


def run(chunks: Chunks, **options: Any) -> torch.Tensor:
    """Call the operator with everything that it needs."""
    return prefill_attention(
        chunks.q,
        chunks.cache,
        chunks.scales,
        LAYER,
        chunks.tables,
        chunks.starts,
        chunks.firsts,
        **{"scale": SCALE, "longest": chunks.longest, "window": chunks.case.window, **options},
    )


def dense(chunks: Chunks, softcap: float = 0.0) -> torch.Tensor:
    """What the operator is defined as."""
    parts = []
    for chunk, (start, count) in enumerate(chunks.case.spans):
        first, k, v = chunks.keys(chunk)
        q = chunks.q[chunks.rows(chunk)].float().contiguous()
        at = torch.arange(start, start + count)
        out = reference.attend(q, k, v, at, first=first, window=chunks.case.window, scale=SCALE, softcap=softcap)
        parts.append(out.view(count, -1, chunks.case.head_dim))
    return torch.cat(parts)


def check(case: Case, softcap: float = 0.0) -> None:
    chunks = Chunks(case)
    found = run(chunks, softcap=softcap)
    assert found.dtype == case.dtype
    assert error(found, dense(chunks, softcap)) < LIMITS[case.dtype]


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_every_head_size(head_dim: int, dtype: torch.dtype) -> None:
    check(Case(((37, 21),), head_dim=head_dim, dtype=dtype, stored=dtype))


@pytest.mark.parametrize("block", [16, 32, 48, 128])
def test_every_block(block: int) -> None:
    check(Case(((0, 1), (63, 37), (150, 1)), heads=2, block=block))


@pytest.mark.parametrize("window", [1, 16, 17, 40, 500])
@pytest.mark.parametrize("block", [16, 48])
def test_every_window(block: int, window: int) -> None:
    check(Case(((63, 37), (0, 20), (150, 1)), heads=1, kv_heads=1, block=block, window=window))


@pytest.mark.parametrize("window", [0, 31, 32, 33])
def test_where_tiles_begin_and_end(window: int) -> None:
    check(Case(((30, 2), (31, 2), (32, 1), (62, 3), (63, 1), (64, 3)), heads=1, kv_heads=1, window=window))


@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (7, 1), (32, 1)])
def test_every_group(heads: int, kv_heads: int) -> None:
    check(Case(((5, 17), (64, 9)), heads=heads, kv_heads=kv_heads))


@pytest.mark.parametrize(("dtype", "stored"), [(F32, INT8), (F16, INT8), (F32, FP8), (F16, FP8)])
@pytest.mark.parametrize("window", [0, 40])
def test_every_kind_of_codes(dtype: torch.dtype, stored: torch.dtype, window: int) -> None:
    check(Case(((70, 20), (0, 17)), dtype=dtype, stored=stored, window=window))


@pytest.mark.parametrize("window", [0, 40])
def test_scores_are_capped(window: int) -> None:
    check(Case(((63, 30), (0, 17)), window=window), softcap=1.5)


def test_values_of_small_scales_are_not_lost() -> None:
    chunks = Chunks(Case(((300, 17),), dtype=F16, stored=INT8))
    assert chunks.scales is not None
    chunks.scales[:, :, 1] *= 1e-4
    assert error(run(chunks), dense(chunks)) < 2e-3


def test_a_long_prompt() -> None:
    check(Case(((1000, 3), (500, 1)), heads=2, kv_heads=2))


def test_sinks_take_their_share() -> None:
    chunks, sinks = Chunks(Case(((40, 10),))), torch.tensor([-2.0, 0.5, 3.0, -torch.inf])
    for softcap in (0.0, 2.0):
        _, k, v = chunks.keys(0)
        visible = torch.arange(50) <= torch.arange(40, 50)[:, None]
        expected = attend_chosen(
            chunks.q.contiguous(), k, v, visible[:, None].expand(-1, 2, -1), scale=SCALE, softcap=softcap, sinks=sinks
        )
        assert error(run(chunks, softcap=softcap, sinks=sinks), expected) < LIMITS[F32]


@pytest.mark.parametrize("stored", [F16, INT8])
@pytest.mark.parametrize("window", [0, 23])
def test_a_prompt_in_one_chunk_is_a_prompt_in_many(stored: torch.dtype, window: int) -> None:
    whole = Chunks(Case(((0, 70),), heads=2, kv_heads=1, dtype=F16, stored=stored, window=window))
    expected = run(whole)
    for cuts in ((0, 45, 70), (0, 1, 18, 69, 70), (0, 33, 34, 64, 70)):
        chunks = Chunks(Case(((0, 1),), heads=2, kv_heads=1, dtype=F16, stored=stored))
        chunks.case = replace(whole.case, spans=tuple((a, b - a) for a, b in pairwise(cuts)))
        chunks.q, chunks.cache, chunks.scales = whole.q, whole.cache, whole.scales
        chunks.tables = whole.tables.expand(len(cuts) - 1, -1)
        chunks.starts, chunks.firsts = torch.tensor(cuts[:-1]), torch.tensor(cuts, dtype=torch.int32)
        chunks.longest = max(count for _, count in chunks.case.spans)
        assert torch.equal(run(chunks), expected)


def selection(chunks: Chunks, share: float, query_block: int, key_block: int) -> Selection:
    """Blocks chosen by chance; a query's own block is always one of them."""
    case = chunks.case
    key_blocks = -(-max(start + count for start, count in case.spans) // key_block)
    blocks = torch.full((len(case.spans), -(-chunks.longest // query_block), case.kv_heads, key_blocks), -1)
    for chunk, (start, count) in enumerate(case.spans):
        for i, query in enumerate(range(0, count, query_block)):
            low, high = start + query, start + min(query + query_block, count) - 1
            for head in range(case.kv_heads):
                kept = torch.rand(high // key_block + 1) < share
                kept[low // key_block :] = True
                blocks[chunk, i, head, : int(kept.sum())] = kept.nonzero()[:, 0]
    return Selection(blocks.int(), query_block, key_block)


@pytest.mark.parametrize("window", [0, 70])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 2)])
def test_chosen_blocks_are_those_that_are_read(heads: int, kv_heads: int, window: int) -> None:
    chunks = Chunks(Case(((130, 40), (0, 20), (63, 1)), heads=heads, kv_heads=kv_heads, window=window))
    chosen = selection(chunks, 0.4, query_block=24, key_block=32)
    found = run(chunks, chosen=chosen)
    for chunk, (start, count) in enumerate(chunks.case.spans):
        first, k, v = chunks.keys(chunk)
        keys, at = torch.arange(first, start + count), torch.arange(start, start + count)[:, None]
        visible = (keys <= at) & ((keys > at - window) if window else (keys >= 0))
        lists = chosen.blocks[chunk].repeat_interleave(24, 0)[:count]
        visible = visible[:, None] & (lists[..., None] == keys // 32).any(2)
        expected = attend_chosen(chunks.q[chunks.rows(chunk)].contiguous(), k, v, visible, scale=SCALE)
        assert error(found[chunks.rows(chunk)], expected) < LIMITS[F32]


@pytest.mark.parametrize("window", [0, 45])
def test_all_blocks_are_dense_attention_bit_for_bit(window: int) -> None:
    chunks = Chunks(Case(((130, 40), (0, 20)), heads=2, kv_heads=1, dtype=F16, stored=INT8, window=window))
    chosen = selection(chunks, 1.1, query_block=32, key_block=64)
    assert torch.equal(run(chunks, chosen=chosen), run(chunks))


def test_blocks_that_are_not_chosen_are_not_fetched() -> None:
    chunks = Chunks(Case(((128, 16),), kv_heads=4))
    blocks = torch.tensor([0, 3, 4, -1], dtype=torch.int32).expand(1, 1, 4, -1).contiguous()
    chosen = Selection(blocks, 16, 32)
    expected = run(chunks, chosen=chosen)
    chunks.cache[chunks.tables[0, 2:6]] = torch.nan
    assert torch.equal(run(chunks, chosen=chosen), expected)


def test_addresses_beyond_31_bits() -> None:
    case = Case(((40, 5),), heads=1, kv_heads=1, dtype=F16, stored=INT8)
    near = Chunks(case)
    # Memory that nobody touches costs nothing: 2.6 GB of which a few blocks at the end are used.
    blocks, used = 1_300_000, near.cache.shape[0]
    far = Chunks(case)
    far.q, far.tables = near.q, near.tables + blocks - used
    far.cache = torch.empty((blocks, 1, 2, 16, 1, 64), dtype=INT8).expand(-1, LAYER + 1, -1, -1, -1, -1)
    far.scales = torch.zeros(1).expand(blocks, LAYER + 1, 2, 16, 1)
    far.cache[-used:, 0] = near.cache[:, LAYER]
    far.scales = torch.ones(1, 1, 1, 1, 1).expand(blocks, LAYER + 1, 2, 16, 1)
    near.scales = torch.ones(near.cache.shape[:5])
    assert torch.equal(run(far), run(near))


def test_what_is_not_possible_is_refused() -> None:
    chunks = Chunks(Case(((40, 10), (0, 3))))
    chosen = selection(chunks, 0.5, 16, 32)
    for options, reason in [
        ({"scale": 0.0}, "scale of 0.0"),
        ({"longest": 0}, "at most 0 queries"),
        ({"window": -1}, "window of -1"),
        ({"sinks": torch.zeros(3)}, r"sinks must be \[4\]"),
        ({"chosen": replace(chosen, key_block=48)}, "multiple of 32 keys, not 48"),
        ({"chosen": replace(chosen, blocks=chosen.blocks[:1])}, r"must be \[2, 1, 2, most\], not \[1, 1, 2"),
        ({"chosen": replace(chosen, blocks=chosen.blocks.long())}, "int32"),
        ({"longest": 17, "chosen": chosen}, r"must be \[2, 2, 2, most\]"),
    ]:
        with pytest.raises(ValueError, match=reason):
            run(chunks, **options)
    for name, wrong, reason in [
        ("starts", chunks.starts.int(), r"starts must be \[2\] int64"),
        ("firsts", chunks.firsts[:2], r"firsts must be \[3\] int32"),
        ("tables", chunks.tables.float(), "tables must be"),
    ]:
        broken = Chunks(chunks.case)
        setattr(broken, name, wrong)
        with pytest.raises(ValueError, match=reason):
            run(broken)
    with pytest.raises(ValueError, match="at most 32 heads can share a key/value head, not 33"):
        run(Chunks(Case(((0, 1),), heads=33, kv_heads=1)))
