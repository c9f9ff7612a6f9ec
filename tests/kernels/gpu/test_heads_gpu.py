"""Heads on their way into attention and cache, in the interpreter, against the definition."""

from dataclasses import dataclass

import pytest
import torch

from kernels.batch import KvPool, PrefillChunk
from kernels.gpu.heads import prepare_heads, slots_of
from kernels.kv_codes import encode
from kernels.reference import read, rms_norm, rotate, write

F16, F32, INT8, FP8 = torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn
EPSILON = 1e-5
LAYERS, LAYER = 3, 1
ROWS = 5


@dataclass
class Batch:
    """Tokens at unequal positions, each in a sequence of its own, and the cache that they go into."""

    dtype: torch.dtype
    stored: torch.dtype
    heads: int
    kv_heads: int
    head_dim: int
    block: int

    def __post_init__(self) -> None:
        columns = (self.heads + 2 * self.kv_heads) * self.head_dim
        wide = torch.full((ROWS, columns + 8), torch.nan, dtype=self.dtype)
        self.qkv = wide[:, :columns]
        self.qkv[:] = torch.randn(ROWS, columns) * 2
        self.positions = torch.tensor([0, 1, 17, self.block - 1, 3 * self.block])
        entries = 3 * self.block // self.block + 17 // self.block + 1
        self.tables = torch.randperm(ROWS * entries).view(ROWS, entries)
        shape = (ROWS * entries, LAYERS, 2, self.block, self.kv_heads, self.head_dim)
        self.has_scales = self.stored in (INT8, FP8)
        self.cache = torch.full(shape, 99 if self.stored == INT8 else torch.nan).to(self.stored)
        self.scales = torch.full(shape[:-1], torch.nan) if self.has_scales else None
        angles = torch.randn(int(self.positions.max()) + 1, self.head_dim // 2)
        self.angles = torch.cat([angles.cos(), angles.sin()], -1)

    @property
    def slots(self) -> torch.Tensor:
        return slots_of(self.tables, self.positions, self.block)

    def split(self, q_norm: torch.Tensor | None, k_norm: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values as the definition makes them, in the activations' type."""
        parts = self.qkv.float().unflatten(1, (-1, self.head_dim))
        q, k, v = torch.split(parts, [self.heads, self.kv_heads, self.kv_heads], 1)
        q = q if q_norm is None else rms_norm(q, q_norm, EPSILON)
        k = k if k_norm is None else rms_norm(k, k_norm, EPSILON)
        angles = self.angles[self.positions]
        return rotate(q, angles).to(self.dtype), rotate(k, angles).to(self.dtype), v.to(self.dtype)

    def written(self, k: torch.Tensor, v: torch.Tensor) -> KvPool:
        """What the cache should hold."""
        pool = KvPool(self.cache.clone(), None if self.scales is None else self.scales.clone())
        for row, position in enumerate(self.positions.tolist()):
            if self.stored == FP8:
                assert pool.scales is not None
                block, place = self.tables[row, position // self.block], position % self.block
                for kind, values in enumerate((k, v)):
                    codes, scales = encode(values[row], FP8)
                    # fancy indexing knows no float8
                    pool.cache.view(torch.uint8)[block, LAYER, kind, place] = codes.view(torch.uint8)
                    pool.scales[block, LAYER, kind, place] = scales
            else:
                chunk = PrefillChunk(row, 1, position, (self.tables[row],))
                write(pool, LAYER, chunk, self.tables[row], k[row : row + 1], v[row : row + 1])
        return pool

    def prepare(self, q_norm: torch.Tensor | None, k_norm: torch.Tensor | None) -> torch.Tensor:
        return prepare_heads(
            self.qkv,
            self.positions,
            self.angles,
            self.slots,
            self.cache,
            self.scales,
            LAYER,
            epsilon=EPSILON,
            q_norm=q_norm,
            k_norm=k_norm,
        )


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact.double()).norm() / exact.double().norm())


SHAPES = [(9, 3, 64, 16), (4, 1, 80, 16), (3, 3, 96, 32), (14, 2, 128, 16), (2, 1, 256, 100), (1, 1, 2, 4), (6, 2, 18, 8)]


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "block"), SHAPES)
@pytest.mark.parametrize(("dtype", "stored"), [(F32, F32), (F16, F16), (F32, INT8), (F16, INT8), (F16, FP8)])
def test_without_norms_every_bit_is_the_definitions(
    dtype: torch.dtype, stored: torch.dtype, heads: int, kv_heads: int, head_dim: int, block: int
) -> None:
    batch = Batch(dtype, stored, heads, kv_heads, head_dim, block)
    q, k, v = batch.split(None, None)
    expected = batch.written(k, v)
    found = batch.prepare(None, None)
    assert found.data_ptr() == batch.qkv.data_ptr()
    assert torch.equal(found, q)
    assert torch.equal(bits(batch.cache), bits(expected.cache))
    if expected.scales is not None:
        assert batch.scales is not None
        assert torch.equal(bits(batch.scales), bits(expected.scales))


@pytest.mark.parametrize("which", ["q", "k", "both"])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "block"), SHAPES[:5])
@pytest.mark.parametrize(("dtype", "stored", "limit"), [(F32, F32, 1e-6), (F16, F16, 1e-3), (F16, INT8, 1e-2)])
def test_norms_come_before_the_rotation(
    dtype: torch.dtype, stored: torch.dtype, limit: float, heads: int, kv_heads: int, head_dim: int, block: int, which: str
) -> None:
    batch = Batch(dtype, stored, heads, kv_heads, head_dim, block)
    q_norm = torch.randn(head_dim) if which != "k" else None
    k_norm = torch.randn(head_dim) if which != "q" else None
    q, k, v = batch.split(q_norm, k_norm)
    expected = batch.written(k, v)
    found = batch.prepare(q_norm, k_norm)
    assert error(found, q) < min(limit, 1e-3)
    pool = KvPool(batch.cache, batch.scales)
    for row, position in enumerate(batch.positions.tolist()):
        its = read(pool, LAYER, batch.tables[row], position, position + 1)
        exact = read(expected, LAYER, batch.tables[row], position, position + 1)
        assert error(its[0], exact[0]) < limit
        assert torch.equal(its[1], exact[1])


def test_nothing_else_is_written() -> None:
    batch = Batch(F16, F16, 4, 2, 32, 8)
    before = batch.qkv.clone()
    batch.prepare(None, None)
    assert torch.equal(batch.qkv[:, 4 * 32 :], before[:, 4 * 32 :])
    numbers = ~batch.cache.isnan()
    assert int(numbers.sum()) == ROWS * 2 * 2 * 32
    assert not numbers[:, [0, 2]].any()


def test_a_row_without_a_slot_is_rotated_and_not_written() -> None:
    batch = Batch(F32, INT8, 4, 2, 32, 8)
    batch.tables[2] = -1
    q = batch.split(None, None)[0]
    kept = batch.tables.clone()
    cache = batch.cache.clone()
    assert int(batch.slots[2]) < 0
    assert torch.equal(batch.prepare(None, None), q)
    batch.tables = kept
    changed = (batch.cache != cache).flatten(1).any(1).nonzero()[:, 0]
    assert set(changed.tolist()) == {int(batch.tables[row, batch.positions[row] // 8]) for row in (0, 1, 3, 4)}


def test_zeros_have_scale_zero_and_halves_go_to_the_even_code() -> None:
    batch = Batch(F32, INT8, 1, 1, 8, 4)
    batch.qkv[:] = 0
    batch.qkv[0, 16:] = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -127.0])
    batch.prepare(None, None)
    assert batch.scales is not None
    block = int(batch.tables[0, 0])
    assert batch.cache[block, LAYER, 1, 0, 0].tolist() == [127, 0, 2, 2, 0, -2, -2, -127]
    assert float(batch.scales[block, LAYER, 1, 0, 0]) == 1.0
    assert float(batch.scales[block, LAYER, 0, 0, 0]) == 0.0
    assert not batch.cache[block, LAYER, 0, 0].any()


def test_tokens_of_a_chunk_share_a_row_of_the_tables() -> None:
    tables = torch.tensor([[3, 9], [4, 1]])
    positions, which = torch.tensor([2, 3, 4, 7, 0]), torch.tensor([0, 0, 0, 1, 1])
    assert slots_of(tables, positions, 4, which).tolist() == [14, 15, 36, 7, 16]


def test_a_row_does_not_depend_on_the_others() -> None:
    batch = Batch(F16, INT8, 9, 3, 64, 16)
    norm, qkv, slots = torch.randn(64), batch.qkv.clone(), batch.slots
    among = batch.prepare(norm, norm).clone()
    for row in range(ROWS):
        cache, scales = torch.zeros_like(batch.cache), torch.zeros_like(batch.scales)
        one = slice(row, row + 1)
        alone = prepare_heads(
            qkv[one], batch.positions[one], batch.angles, slots[one], cache, scales, LAYER,
            epsilon=EPSILON, q_norm=norm, k_norm=norm,
        )  # fmt: skip
        assert torch.equal(alone[0], among[row])
        block, place = int(slots[row]) // 16, int(slots[row]) % 16
        assert torch.equal(cache[block, LAYER, :, place], batch.cache[block, LAYER, :, place])


def test_what_does_not_fit_is_refused() -> None:
    def refused(said: str, **changes: object) -> None:
        batch = Batch(F32, INT8, 2, 1, 8, 4)
        arguments = {
            "qkv": batch.qkv, "positions": batch.positions, "angles": batch.angles, "slots": batch.slots,
            "cache": batch.cache, "scales": batch.scales, "layer": LAYER, "epsilon": EPSILON, **changes,
        }  # fmt: skip
        with pytest.raises(ValueError, match=said):
            prepare_heads(**arguments)

    refused("rows of 33", qkv=torch.randn(ROWS, 33))
    refused("rows of 16", qkv=torch.randn(ROWS, 16))
    refused("needs scales", scales=None)
    refused(r"scales of \[3\]", scales=torch.randn(3))
    refused(r"\[4\] positions", positions=torch.zeros(4, dtype=torch.int64))
    refused("dense rows of 8", angles=torch.randn(10, 6))
    refused(r"of 8 numbers, not \[7\]", q_norm=torch.randn(7))
    refused("no layer 3 among 3", layer=3)
    refused("heads must be dense", qkv=torch.randn(32, ROWS).t())


def test_no_rows_are_no_work() -> None:
    batch = Batch(F32, F32, 2, 1, 8, 4)
    none = torch.zeros(0, dtype=torch.int64)
    found = prepare_heads(batch.qkv[:0], none, batch.angles, none, batch.cache, None, 0, epsilon=EPSILON)
    assert found.shape == (0, 2, 8)
