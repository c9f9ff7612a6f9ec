"""Attention over a paged cache by each implementation of the operators: rotation, the write into the cache, the sums."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.batch import KvPool
from kernels.cpu.ops import CpuOps
from kernels.ops import Attention, Ops, open_device
from kernels.reference import TorchOps, rms_norm, rotate
from tests.kernels.paged import BF16, F32, INT8, TYPES, Case, Paged, cases, error, widened

TOLERANCE = {F32: 3e-6, BF16: 6e-3}
KINDS = pytest.mark.parametrize(("dtype", "stored"), TYPES, ids=["f32", "bf16", "f32-int8", "bf16-int8"])


def cpu(paged: Paged, pools: list[KvPool], threads: int = 1) -> CpuOps:
    return CpuOps(paged.shape, pools, paged.layers(), paged.case.dtype, threads)


def plain(paged: Paged, pools: list[KvPool]) -> TorchOps:
    return TorchOps(paged.shape, pools, paged.layers(), paged.case.dtype)


def plans(paged: Paged) -> list[Callable[[Ops], Attention]]:
    """The same tokens as a batch of single ones, and as parts of prompts."""
    return [lambda ops: ops.decode(paged.decode_batch()), lambda ops: ops.prefill(paged.chunks())]


def attended(paged: Paged, attention: Attention, rows: list[int] | None = None) -> list[torch.Tensor]:
    """What each layer gives; the queries, keys and values are of `rows`, or of all."""
    return [attention((qkv if rows is None else qkv[rows]).clone(), layer).clone() for layer, qkv in enumerate(paged.qkv)]


def assert_same_cache(found: list[KvPool], expected: list[KvPool], dtype: torch.dtype) -> None:
    """Written at the same places, what was there left as it was; int8 codes and bfloat16 may be rounded the other way."""
    for one, other in zip(found, expected, strict=True):
        ours, theirs = widened(one), widened(other)
        assert torch.equal(ours.isnan(), theirs.isnan())
        step = theirs.abs().amax(-1, keepdim=True) / 127 if one.scales is not None else theirs.abs() * 2.0**-7
        exact = 1e-5 * (1 + theirs.abs())
        allowed = exact if dtype == F32 and one.scales is None else step + exact
        assert ((ours - theirs).abs() <= 1.01 * allowed)[~theirs.isnan()].all()


def compare(paged: Paged, plan: Callable[[Ops], Attention]) -> None:
    ours, theirs = paged.pools(), paged.pools()
    found, expected = attended(paged, plan(cpu(paged, ours))), attended(paged, plan(plain(paged, theirs)))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype == paged.case.dtype
        # A code of an int8 cache that is rounded the other way is one part in 127 of the largest number of a head.
        assert error(one, other) < (TOLERANCE[paged.case.dtype] if paged.case.stored != INT8 else 6e-3)
    assert_same_cache(ours, theirs, paged.case.dtype)


lengths = st.lists(st.integers(1, 400), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(case=cases, lengths=lengths)
def test_tokens_of_several_sequences_are_decoded_as_defined(case: Case, lengths: list[int]) -> None:
    paged = Paged(case, [(length - 1, 1) for length in lengths])
    compare(paged, lambda ops: ops.decode(paged.decode_batch()))


@settings(max_examples=15, deadline=None)
@given(case=cases, spans=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 9)), min_size=1, max_size=3))
def test_the_tokens_of_a_draft_see_each_other(case: Case, spans: list[tuple[int, int]]) -> None:
    paged = Paged(case, spans)
    compare(paged, lambda ops: ops.decode(paged.decode_batch()))


@settings(max_examples=25, deadline=None)
@given(case=cases, spans=st.lists(st.tuples(st.integers(0, 250), st.integers(1, 90)), min_size=1, max_size=3))
def test_parts_of_several_prompts_are_computed_as_defined(case: Case, spans: list[tuple[int, int]]) -> None:
    paged = Paged(case, spans)
    compare(paged, lambda ops: ops.prefill(paged.chunks()))


@KINDS
@settings(max_examples=8, deadline=None)
@given(case=cases, lengths=lengths)
def test_a_decoded_token_has_the_same_bits_alone_and_beside_others(
    dtype: torch.dtype, stored: torch.dtype, case: Case, lengths: list[int]
) -> None:
    paged = Paged(Case(**(vars(case) | {"dtype": dtype, "stored": stored})), [(length - 1, 1) for length in lengths])
    together = attended(paged, cpu(paged, paged.pools()).decode(paged.decode_batch()))
    for sequence in range(len(lengths)):
        alone = attended(paged, cpu(paged, paged.pools()).decode(paged.decode_batch([sequence])), [sequence])
        for one, many in zip(alone, together, strict=True):
            assert torch.equal(one[0], many[sequence])


@KINDS
@settings(max_examples=6, deadline=None)
@given(case=cases, spans=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 12)), min_size=1, max_size=6))
def test_the_number_of_threads_changes_no_bit(
    dtype: torch.dtype, stored: torch.dtype, case: Case, spans: list[tuple[int, int]]
) -> None:
    paged = Paged(Case(**(vars(case) | {"dtype": dtype, "stored": stored})), spans)
    for plan in plans(paged):
        first = paged.pools()
        alone = attended(paged, plan(cpu(paged, first)))
        for threads in (2, 3):
            again = paged.pools()
            assert all(map(torch.equal, attended(paged, plan(cpu(paged, again, threads))), alone))
            for one, other in zip(again, first, strict=True):
                assert torch.equal(one.cache.view(torch.uint8), other.cache.view(torch.uint8))
                assert torch.equal(widened(one).nan_to_num(), widened(other).nan_to_num())


@KINDS
def test_a_step_after_another_reads_what_that_one_wrote(dtype: torch.dtype, stored: torch.dtype) -> None:
    case = Case(dtype=dtype, stored=stored, window=20, qk_norm=True)
    paged = Paged(case, [(0, 150), (30, 80)])
    pools = paged.pools()
    at_once = attended(paged, cpu(paged, pools).prefill(paged.chunks()))
    ops, steps = cpu(paged, paged.pools()), []
    for i in range(80):
        spans = [(old + i, 1) for old, _ in paged.spans]
        moved = Paged(case, spans)
        moved.tables = paged.tables
        attention = ops.decode(moved.decode_batch())
        rows = [paged.rows_of(s).start + i for s in range(2)]
        steps.append(attended(paged, attention, rows))
    for layer, whole in enumerate(at_once):
        for s in range(2):
            found = torch.stack([step[layer][s] for step in steps])
            assert error(found, whole[paged.rows_of(s)][:80]) < (3e-6 if (dtype, stored) == (F32, F32) else 1.5e-2)


@settings(max_examples=30, deadline=None)
@given(case=cases, old=st.integers(0, 120), new=st.integers(1, 20))
def test_the_definition_is_causal_attention_in_float64(case: Case, old: int, new: int) -> None:
    paged = Paged(Case(**(vars(case) | {"dtype": F32, "stored": F32, "softcap": 0.0})), [(old, new)])
    pools = paged.pools()
    found = attended(paged, plain(paged, pools).prefill(paged.chunks()))
    heads, kv_heads, positions = case.heads, case.kv_heads, torch.arange(old, old + new)
    for layer, (place, qkv) in enumerate(zip(paged.layers(), paged.qkv, strict=True)):
        q = qkv.view(new, -1, case.head_dim)[:, :heads].double()
        if place.q_norm is not None:
            q = torch.nn.functional.rms_norm(q, (case.head_dim,), place.q_norm.double(), 1e-5)
        turned = torch.view_as_complex(torch.stack(q.chunk(2, -1), -1)) * torch.complex(
            *paged.angles[positions, None].double().chunk(2, -1)
        )
        q = torch.cat([turned.real, turned.imag], -1)
        window, table = paged.windows[place.pool], paged.tables[place.pool][0]
        first = max(0, old - window + 1) if window else 0
        at = torch.arange(first, old + new)
        k, v = pools[place.pool].cache[table[at // case.block], place.index, :, at % case.block].double().unbind(1)
        seen = (at <= positions[:, None]) & (at > positions[:, None] - (window or 10**6))
        exact = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1),
            k.transpose(0, 1).repeat_interleave(heads // kv_heads, 0),
            v.transpose(0, 1).repeat_interleave(heads // kv_heads, 0),
            seen,
            scale=paged.shape.scale,
        )
        assert error(found[layer], exact.transpose(0, 1).flatten(1)) < 2e-6


def test_keys_are_normed_and_rotated_before_they_are_stored_and_values_are_not() -> None:
    paged = Paged(Case(qk_norm=True, window=5), [(3, 2)])
    pools = paged.pools()
    attended(paged, cpu(paged, pools).decode(paged.decode_batch()))
    place = paged.layers()[2]
    heads = paged.qkv[2].view(2, -1, 64)
    k, v = heads[:, 9:12], heads[:, 12:]
    at = torch.arange(3, 5)
    stored = pools[0].cache[paged.tables[0][0, at // 16], place.index, :, at % 16]
    assert place.k_norm is not None
    assert torch.allclose(stored[:, 0], rotate(rms_norm(k, place.k_norm, 1e-5), paged.angles[at]), atol=1e-6)
    assert torch.equal(stored[:, 1], v)


def test_the_fastest_operators_that_can_do_a_model_are_chosen() -> None:
    paged = Paged(Case(), [(3, 1)])
    assert isinstance(open_device(threads=1).ops(paged.shape, paged.pools(), paged.layers(), F32), CpuOps)


@pytest.mark.parametrize("head_dim", [24, 80, 100])
def test_heads_of_any_even_length_are_possible(head_dim: int) -> None:
    paged = Paged(Case(head_dim=head_dim, window=20, qk_norm=True), [(50, 1), (3, 1)])
    ours, theirs = paged.pools(), paged.pools()
    ops = open_device(threads=1).ops(paged.shape, ours, paged.layers(), F32)
    for plan in plans(paged):
        for one, other in zip(attended(paged, plan(ops)), attended(paged, plan(plain(paged, theirs))), strict=True):
            assert error(one, other) < 3e-6


@pytest.mark.parametrize(("heads", "head_dim"), [(10, 64), (9, 31)])
def test_impossible_shapes_are_refused(heads: int, head_dim: int) -> None:
    shape = Paged(Case(), [(3, 1)]).shape
    wrong = type(shape)(heads=heads, kv_heads=3, head_dim=head_dim, scale=1.0, epsilon=1e-5)
    with pytest.raises(ValueError, match=f"{heads} heads of {head_dim} cannot share 3 key/value heads"):
        open_device(threads=1).ops(wrong, [], [], F32)
