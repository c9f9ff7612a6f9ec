"""Prefill attention against a naive one in float64, in memory where everything that must not be read is NaN."""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.cpu.prefill_attention import PrefillAttention, scratch_bytes
from kernels.cpu.vectors import HAS_BF16

F32, BF16 = torch.float32, torch.bfloat16


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype = F32
    count: int = 64
    start: int = 0
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    window: int = 0
    block: int = 16
    softcap: float = 0.0
    extra: int = 0  # numbers between the queries of two rows
    widen: bool = False
    loudness: float = 1.0
    seed: int = 0


cases = st.builds(
    Case,
    count=st.sampled_from([1, 3, 17, 64, 100, 257]),
    start=st.sampled_from([0, 1, 7, 63, 500]),
    head_dim=st.sampled_from([64, 80, 128, 256]),
    window=st.sampled_from([0, 1, 5, 16, 64]),
    block=st.sampled_from([8, 16, 32, 100]),
    extra=st.sampled_from([0, 2, 384]),
    seed=st.integers(0, 1 << 30),
).flatmap(
    lambda case: st.sampled_from([(9, 3), (4, 1), (8, 8), (14, 2)]).map(
        lambda heads: replace(case, heads=heads[0], kv_heads=heads[1])
    )
)


class Memory:
    """The queries, keys and values of a case, and a cache that holds them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        dice = torch.Generator().manual_seed(case.seed)
        length, layers, self.layer = case.start + case.count, 2, 1
        self.q = torch.randn(case.count, case.heads, case.head_dim, generator=dice).mul(case.loudness).to(case.dtype)
        self.k, self.v = torch.randn(2, length, case.kv_heads, case.head_dim, generator=dice).to(case.dtype)
        blocks = -(-length // case.block)
        self.cache = torch.full((blocks + 2, layers, 2, case.block, case.kv_heads, case.head_dim), torch.nan, dtype=case.dtype)
        self.table = torch.randperm(blocks + 2, generator=dice)[:blocks]
        first = max(0, case.start - case.window + 1) if case.window else 0
        at = torch.arange(first, length)
        for kind, rows in enumerate((self.k, self.v)):
            self.cache[self.table[at // case.block], self.layer, kind, at % case.block] = rows[first:]
        self.table[: first // case.block] = -1

    def attended(self, *, threads: int = 1, chunks: tuple[int, ...] = ()) -> torch.Tensor:
        """[count, heads * head_dim], in one chunk or in chunks of these lengths and the rest."""
        case = self.case
        width = case.heads * case.head_dim
        wide = torch.full((case.count, width + case.extra), torch.nan, dtype=case.dtype)
        wide[:, :width] = self.q.flatten(1)
        out = torch.full((case.count, width), torch.nan, dtype=case.dtype)
        attention = PrefillAttention(
            self.cache,
            heads=case.heads,
            query_stride=wide.stride(0),
            scale=case.head_dim**-0.5,
            softcap=case.softcap,
            threads=threads,
            widen=case.widen,
        )
        attention._scratch.fill_(0xFF)  # NaN in either type
        done = 0
        for count in (*chunks, case.count - sum(chunks)):
            attention(
                wide[done:].data_ptr(),
                out[done:].data_ptr(),
                self.table.data_ptr(),
                case.start + done,
                count,
                self.layer,
                case.window,
            )
            done += count
        return out

    def _seen(self) -> torch.Tensor:
        case = self.case
        queries, keys = torch.arange(case.start, case.start + case.count)[:, None], torch.arange(case.start + case.count)
        return (keys <= queries) & (keys > queries - (case.window or queries + 1))

    def _grouped(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.transpose(0, 1).repeat_interleave(self.case.heads // self.case.kv_heads, 0)

    def exact(self) -> torch.Tensor:
        scores = self.q.double().transpose(0, 1) @ self._grouped(self.k.double()).transpose(1, 2) * self.case.head_dim**-0.5
        if self.case.softcap:
            scores = self.case.softcap * torch.tanh(scores / self.case.softcap)
        weights = scores.masked_fill(~self._seen(), -torch.inf).softmax(-1)
        return (weights @ self._grouped(self.v.double())).transpose(0, 1).flatten(1)

    def by_torch(self) -> torch.Tensor:
        out = torch.nn.functional.scaled_dot_product_attention(
            self.q.transpose(0, 1)[None], self._grouped(self.k)[None], self._grouped(self.v)[None], attn_mask=self._seen()
        )
        return out[0].transpose(0, 1).flatten(1)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative, in the Frobenius norm."""
    return float((found.double() - exact).norm() / exact.norm())


@settings(max_examples=60, deadline=None)
@given(case=cases)
def test_float32_is_exact_to_float32(case: Case) -> None:
    memory = Memory(case)
    assert error(memory.attended(), memory.exact()) < 2e-6


@pytest.mark.parametrize("widen", [False, True])
@settings(max_examples=40, deadline=None)
@given(case=cases)
def test_bfloat16_is_as_exact_as_torch(widen: bool, case: Case) -> None:
    memory = Memory(replace(case, dtype=BF16, widen=widen))
    exact = memory.exact()
    found = error(memory.attended(), exact)
    assert found < 1e-2
    assert found <= 1.5 * error(memory.by_torch(), exact)


@pytest.mark.parametrize("dtype", [F32, BF16])
@settings(max_examples=15, deadline=None)
@given(case=cases, cut=st.integers(0, 256))
def test_threads_and_chunks_do_not_change_a_bit(dtype: torch.dtype, case: Case, cut: int) -> None:
    memory = Memory(replace(case, dtype=dtype))
    alone = memory.attended()
    assert torch.equal(memory.attended(threads=2), alone)
    assert torch.equal(memory.attended(threads=3), alone)
    assert torch.equal(memory.attended(chunks=(cut % case.count,)), alone)


@pytest.mark.parametrize("window", [0, 5])
def test_scores_are_capped_softly(window: int) -> None:
    memory = Memory(Case(count=100, start=63, heads=4, kv_heads=1, head_dim=80, softcap=5.0, loudness=10.0, window=window))
    assert error(memory.attended(), memory.exact()) < 2e-6


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("level", [-2000.0, 2000.0])
def test_scores_far_from_zero_neither_vanish_nor_overflow(dtype: torch.dtype, level: float) -> None:
    memory = Memory(Case(dtype=dtype, count=300, heads=2, kv_heads=1))
    memory.q[:], memory.cache[:, :, 0] = level / 8, 1.0
    mean = memory.v.double()[:, 0].cumsum(0) / torch.arange(1, 301)[:, None]
    assert error(memory.attended(), mean.repeat(1, 2)) < (1e-6 if dtype == F32 else 1e-2)


def test_one_key_outweighs_all_others() -> None:
    memory = Memory(Case(count=200, heads=2, kv_heads=1, loudness=3000.0))
    assert error(memory.attended(), memory.exact()) < 1e-3


def test_heads_that_are_no_multiple_of_a_strip_share_a_cache_of_many() -> None:
    memory = Memory(Case(count=11, start=2, heads=71, kv_heads=1, head_dim=16, block=8))
    assert error(memory.attended(threads=2), memory.exact()) < 2e-6


def test_scratch_can_be_shared() -> None:
    memory = Memory(Case(count=5))
    scratch = torch.empty(scratch_bytes(memory.cache, 9, 1), dtype=torch.uint8)
    attention = PrefillAttention(memory.cache, heads=9, query_stride=9 * 64, scale=0.125, threads=1, scratch=scratch)
    for _ in range(2):
        out = torch.full((5, 9 * 64), torch.nan)
        attention(memory.q.data_ptr(), out.data_ptr(), memory.table.data_ptr(), 0, 5, 1)
        assert error(out, memory.exact()) < 2e-6


@pytest.mark.parametrize(
    ("shape", "dtype", "heads", "scratch", "message"),
    [
        ((1, 1, 2, 16, 3, 64), torch.float16, 9, None, "not torch.float16"),
        ((1, 1, 2, 16, 3, 40), F32, 9, None, "9 heads of 40 over 3"),
        ((1, 1, 2, 16, 3, 64), F32, 10, None, "10 heads of 64 over 3"),
        ((1, 1, 2, 16, 3, 64), F32, 9, 1000, "bytes of scratch, not 1000"),
    ],
)
def test_what_it_cannot_do_is_refused(
    shape: tuple[int, ...], dtype: torch.dtype, heads: int, scratch: int | None, message: str
) -> None:
    buffer = None if scratch is None else torch.empty(scratch, dtype=torch.uint8)
    with pytest.raises(ValueError, match=message):
        PrefillAttention(torch.empty(shape, dtype=dtype), heads=heads, query_stride=640, scale=1.0, threads=1, scratch=buffer)


@pytest.mark.skipif(platform.machine() != "x86_64" or not HAS_BF16, reason="a newer CPU of the same kind has to run it")
def test_a_cpu_without_long_registers_and_bfloat16_can_do_it() -> None:
    script = """
import test_prefill_attention_cpu as tests
assert not tests.HAS_BF16
memory = tests.Memory(tests.Case(dtype=tests.BF16, count=100, start=63, head_dim=80, window=70))
assert tests.error(memory.attended(), memory.exact()) < 2e-3
"""
    # What numba compiles for, instead of what it finds.
    cpu = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2"}
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, **cpu, "PYTHONPATH": path}, timeout=120)
