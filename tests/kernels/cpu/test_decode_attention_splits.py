"""Decode attention: where keys are cut into pieces, tiles and blocks, in memory where all that must not be read is NaN."""

import math
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.batch import AttentionShape, KvPool
from kernels.cpu.buffers import Buffers
from kernels.cpu.decode_attention import DecodeAttention
from kernels.cpu.decode_kernel import SPLIT
from kernels.cpu.vectors import HAS_BF16

F32, BF16, INT8 = torch.float32, torch.bfloat16, torch.int8
TYPES = [(F32, F32), (BF16, BF16), (F32, INT8), (BF16, INT8)]
kinds = pytest.mark.parametrize(("dtype", "stored"), TYPES, ids=["f32", "bf16", "f32-int8", "bf16-int8"])


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype = F32
    stored: torch.dtype = F32
    kv_heads: int = 3
    group: int = 3
    head_dim: int = 64
    window: int = 0
    block: int = 16
    softcap: float = 0.0
    loudness: float = 1.0
    seed: int = 0


cases = st.builds(
    Case,
    kv_heads=st.sampled_from([1, 2, 3]),
    group=st.integers(1, 16),
    head_dim=st.sampled_from([16, 32, 48, 64, 80, 112, 128, 256]),
    window=st.sampled_from([0, 0, 1, 17, 127, 128, 129, 200]),
    block=st.sampled_from([4, 7, 16, 32, 100, 256]),
    softcap=st.sampled_from([0.0, 0.0, 5.0]),
    seed=st.integers(0, 1 << 30),
)
edges = [1, 15, 16, 17, 127, 128, 129, 143, 144, 255, 256, 257, 300, 513]
lengths_of = st.lists(st.sampled_from(edges), min_size=1, max_size=4)


class Memory:
    """Queries, and sequences of keys and values in a cache of two layers; the attention is that of the second."""

    def __init__(self, case: Case, lengths: list[int]) -> None:
        self.case, self.lengths = case, lengths
        self.dice = torch.Generator().manual_seed(case.seed)
        heads = case.kv_heads * case.group
        self.shape = AttentionShape(
            heads=heads,
            kv_heads=case.kv_heads,
            head_dim=case.head_dim,
            scale=case.head_dim**-0.5,
            epsilon=0.0,
            softcap=case.softcap,
        )
        self.q = self.random(len(lengths), heads, case.head_dim).mul(case.loudness).to(case.dtype)
        rows = [self.random(2, length, case.kv_heads, case.head_dim) for length in lengths]
        self.scales = [row.abs().amax(-1) / 127 for row in rows]
        if case.stored == INT8:
            self.rows = [(row / scale[..., None]).round() for row, scale in zip(rows, self.scales, strict=True)]
        else:
            self.rows = [row.to(case.stored) for row in rows]

    def random(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, generator=self.dice)

    def pool(self, block: int) -> tuple[KvPool, torch.Tensor]:
        """A cache with blocks of this size, and its tables."""
        case = self.case
        entries = -(-max(self.lengths) // block)
        count = entries * len(self.lengths) + 1
        cache = torch.full((count, 2, 2, block, case.kv_heads, case.head_dim), torch.nan if case.stored != INT8 else 99.0)
        scales = torch.full(cache.shape[:-1], torch.nan)
        tables = torch.randperm(count, generator=self.dice)[:-1].view(-1, entries)
        for table, length, rows, scale in zip(tables, self.lengths, self.rows, self.scales, strict=True):
            first = max(0, length - case.window) if case.window else 0
            at = torch.arange(first, length)
            for kind in range(2):
                cache[table[at // block], 1, kind, at % block] = rows[kind, first:].float()
                scales[table[at // block], 1, kind, at % block] = scale[kind, first:]
            table[: first // block] = table[-(-length // block) :] = -(1 << 40)
        return KvPool(cache.to(case.stored), scales if case.stored == INT8 else None, case.window), tables

    def attended(self, rows: list[int] | None = None, *, threads: int = 1, block: int | None = None) -> torch.Tensor:
        """[rows, heads * head_dim] of all rows or of some."""
        pool, tables = self.pool(block or self.case.block)
        rows = list(range(len(self.lengths))) if rows is None else rows
        qkv = torch.full((len(rows), self.shape.row), torch.nan, dtype=self.case.dtype)
        qkv[:, : self.shape.heads * self.case.head_dim] = self.q[rows].flatten(1)
        out = torch.full((len(rows), self.shape.heads * self.case.head_dim), torch.nan, dtype=self.case.dtype)
        lengths = torch.tensor(self.lengths)[rows]
        longest = int(lengths.max())
        tables = tables[rows][:, : -(-longest // pool.block)]
        buffers = Buffers(self.case.dtype)
        for _ in range(2):  # the second time nothing of the first is left in the buffers
            attention = DecodeAttention(self.shape, pool, tables, lengths, longest, out, buffers, threads)
            for buffer in buffers._held.values():
                buffer.view(torch.uint8).fill_(0xFF)  # NaN
            attention(qkv.data_ptr(), 1)
        return out

    def exact(self) -> torch.Tensor:
        """The same in float64."""
        results = []
        for q, length, rows, scale in zip(self.q.double(), self.lengths, self.rows, self.scales, strict=True):
            first = max(0, length - self.case.window) if self.case.window else 0
            factor = scale.double()[..., None] if self.case.stored == INT8 else 1.0
            k, v = (rows.double() * factor)[:, first:].repeat_interleave(self.case.group, 2)
            scores = torch.einsum("hd,thd->ht", q, k) * self.case.head_dim**-0.5
            if self.case.softcap:
                scores = self.case.softcap * torch.tanh(scores / self.case.softcap)
            results.append(torch.einsum("ht,thd->hd", scores.softmax(-1), v).flatten())
        return torch.stack(results)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative, in the Frobenius norm; the greatest of all rows."""
    return float(((found.double() - exact).norm(dim=1) / exact.norm(dim=1)).max())


@kinds
@settings(max_examples=25, deadline=None)
@given(case=cases, lengths=lengths_of)
def test_nothing_but_what_a_row_sees_is_read(dtype: torch.dtype, stored: torch.dtype, case: Case, lengths: list[int]) -> None:
    memory = Memory(replace(case, dtype=dtype, stored=stored), lengths)
    assert error(memory.attended(), memory.exact()) < (3e-6 if dtype == F32 else 4e-3)


@kinds
@settings(max_examples=8, deadline=None)
@given(case=cases, lengths=lengths_of)
def test_a_row_has_the_same_bits_in_any_batch_on_any_threads_in_any_blocks(
    dtype: torch.dtype, stored: torch.dtype, case: Case, lengths: list[int]
) -> None:
    memory = Memory(replace(case, dtype=dtype, stored=stored), lengths)
    together = memory.attended()
    for threads in (2, 3, 7):
        assert torch.equal(memory.attended(threads=threads), together)
    for block in (4, 32, 100):
        assert torch.equal(memory.attended(block=block), together)
    for row in range(len(lengths)):
        assert torch.equal(memory.attended([row], threads=2)[0], together[row])


@pytest.mark.parametrize("length", range(1, 2 * SPLIT + 2, 5))
def test_every_number_of_keys_fills_its_last_tile(length: int) -> None:
    memory = Memory(Case(dtype=BF16, stored=BF16, group=5, kv_heads=1, head_dim=16, seed=length), [length])
    assert error(memory.attended(), memory.exact()) < 4e-3


@kinds
@pytest.mark.parametrize("level", [-30000.0, 30000.0])
def test_scores_far_from_zero_neither_vanish_nor_overflow(dtype: torch.dtype, stored: torch.dtype, level: float) -> None:
    memory = Memory(Case(dtype=dtype, stored=stored), [300])
    memory.q[:] = level / 8
    for rows, scales in zip(memory.rows, memory.scales, strict=True):
        rows[0], scales[0] = 1.0, 1.0
    assert error(memory.attended(), memory.exact()) < (1e-6 if dtype == F32 else 4e-3)


@pytest.mark.parametrize("cap", [0.0, 20.0])
def test_one_key_outweighs_those_of_all_other_pieces(cap: float) -> None:
    memory = Memory(Case(loudness=3000.0, softcap=cap), [5 * SPLIT])
    assert error(memory.attended(), memory.exact()) < 1e-3


def test_a_cap_leaves_small_scores_as_they_are() -> None:
    memory = Memory(Case(loudness=0.01, softcap=50.0), [200])
    plain = Memory(Case(loudness=0.01), [200])
    assert error(memory.attended(), plain.exact()) < 3e-6


def test_a_long_sequence_is_the_sum_of_its_pieces() -> None:
    memory = Memory(Case(dtype=BF16, stored=BF16, kv_heads=1, group=4, block=64), [20_000, 3])
    assert math.ceil(20_000 / SPLIT) > 100
    assert error(memory.attended(threads=2), memory.exact()) < 4e-3


@pytest.mark.parametrize(("heads", "head_dim"), [(10, 64), (9, 24)])
def test_what_it_cannot_attend_to_is_refused(heads: int, head_dim: int) -> None:
    shape = AttentionShape(heads=heads, kv_heads=3, head_dim=head_dim, scale=1.0, epsilon=0.0)
    pool = KvPool(torch.zeros(1, 1, 2, 16, 3, head_dim), None)
    one = torch.ones(1, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"cannot do {heads} heads of {head_dim} over 3 key/value heads"):
        DecodeAttention(shape, pool, one[None] * 0, one, 1, torch.empty(1, heads * head_dim), Buffers(F32), 1)


@pytest.mark.skipif(platform.machine() != "x86_64" or not HAS_BF16, reason="a newer CPU of the same kind has to run it")
def test_a_cpu_without_long_registers_and_bfloat16_attends_to_what_was_generated() -> None:
    script = """
import test_decode_attention_splits as tests
assert not tests.HAS_BF16
for dtype, stored in tests.TYPES[1:3]:
    memory = tests.Memory(tests.Case(dtype=dtype, stored=stored, head_dim=80, window=200), [300, 17])
    assert tests.error(memory.attended(), memory.exact()) < (3e-6 if dtype == tests.F32 else 4e-3)
"""
    # What numba compiles for, instead of what it finds.
    cpu = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2"}
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, **cpu, "PYTHONPATH": path}, timeout=120)
