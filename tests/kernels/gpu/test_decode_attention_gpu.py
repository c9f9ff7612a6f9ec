"""Attention of single tokens in the interpreter, against its definition. What must not be read is NaN, and so is new memory."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernels.batch import KvPool
from kernels.gpu import decode_attention as module
from kernels.gpu.decode_attention import decode_attention
from kernels.gpu.launch import Config
from kernels.reference import attend, read

F16, F32, INT8, FP8 = torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn
TOLERANCE = {F32: 3e-6, F16: 1e-3}
TYPES = [(F32, F32), (F16, F16), (F32, INT8), (F16, INT8), (F32, FP8), (F16, FP8)]
TYPE_NAMES = ["f32", "f16", "f32-int8", "f16-int8", "f32-fp8", "f16-fp8"]
LAYER, LAYERS = 1, 3


class Sequences:
    """Sequences of some lengths in a paged cache, with a row for each. Unused places are NaN, unused entries lead to such."""

    def __init__(
        self,
        lengths: list[int],
        *,
        dtype: torch.dtype = F32,
        stored: torch.dtype = F32,
        heads: int = 4,
        kv_heads: int = 2,
        head_dim: int = 16,
        block: int = 16,
        window: int = 0,
        magnitude: float = 1.0,
    ) -> None:
        self.block, self.window, self.positions = block, window, torch.tensor(lengths) - 1
        entries = -(-max(lengths) // block)
        blocks = len(lengths) * entries + 1
        values = torch.full((blocks, LAYERS, 2, block, kv_heads, head_dim), torch.nan)
        self.table = torch.full((len(lengths), entries), blocks - 1)
        order = torch.randperm(blocks - 1).view(len(lengths), entries)
        for row, length in enumerate(lengths):
            first = max(0, length - window) if window else 0
            used = slice(first // block, -(-length // block))
            self.table[row, used] = order[row, used]
            at = torch.arange(first, length)
            values[order[row, at // block], LAYER, :, at % block] = magnitude * torch.randn(len(at), 2, kv_heads, head_dim)
        self.scales = None
        if stored in (INT8, FP8):
            self.scales = values.abs().amax(-1) / (127 if stored == INT8 else 448)
            values = values / self.scales[..., None]
            values = values.nan_to_num(127).round() if stored == INT8 else values
        self.cache = values.to(stored)
        # Rows of queries are apart, as where keys and values stand behind them.
        self.q = torch.randn(len(lengths), heads + 2 * kv_heads, head_dim).to(dtype)[:, :heads]
        self.options: dict[str, Any] = {"scale": 1.5 * head_dim**-0.5, "window": window}

    def attended(self, rows: list[int] | None = None, longest: int | None = None, **more: Any) -> torch.Tensor:
        """What the kernel gives for some of the rows."""
        rows = list(range(len(self.positions))) if rows is None else rows
        positions = self.positions[rows]
        return decode_attention(
            self.q[rows] if len(rows) < len(self.q) else self.q,
            self.cache,
            self.scales,
            LAYER,
            self.table[rows],
            positions,
            longest=int(positions.max()) + 1 if longest is None else longest,
            **self.options,
            **more,
        )

    def expected(
        self, softcap: float = 0.0, sinks: torch.Tensor | None = None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What the definition gives, one row and KV head after the other: the keys that it sees, and no others."""
        out, kv_heads = torch.zeros(self.q.shape), self.cache.shape[4]
        group = self.q.shape[1] // kv_heads
        for row, position in enumerate(self.positions.tolist()):
            first = max(0, position - self.window + 1) if self.window else 0
            k, v = read(KvPool(self.cache, self.scales), LAYER, self.table[row], first, position + 1)
            for head in range(kv_heads):
                seen = torch.ones(len(k), dtype=torch.bool)
                if chosen is not None:
                    seen = torch.isin(torch.arange(first, position + 1) // self.block, chosen[row, head])
                if not seen.any():
                    out[row, head * group : (head + 1) * group] = 0
                    continue
                heads = slice(head * group, (head + 1) * group)
                out[row, heads] = attend(
                    self.q[row : row + 1, heads].float(),
                    k[seen, head : head + 1],
                    v[seen, head : head + 1],
                    torch.tensor([int(seen.sum()) - 1]),
                    first=0,
                    window=0,
                    scale=self.options["scale"],
                    softcap=softcap,
                    sinks=None if sinks is None else sinks[heads],
                ).view(group, -1)
        return out

    def choose(self, share: float, most: int) -> torch.Tensor:
        """Entries for every row and KV head, each with a chance of `share`."""
        chosen = torch.full((len(self.positions), self.cache.shape[4], most), -1, dtype=torch.int32)
        for row, position in enumerate(self.positions.tolist()):
            for head in range(chosen.shape[1]):
                entries = (torch.rand(position // self.block + 1) < share).nonzero()[:most, 0]
                chosen[row, head, : len(entries)] = entries
        return chosen


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative, in the Frobenius norm."""
    return float((found.float() - expected).norm() / expected.norm())


@pytest.fixture(autouse=True)
def nothing_is_left_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", lambda *size, **how: torch.full(size, torch.nan, **how))


@pytest.fixture
def short_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many splits, and so many that they are merged in several steps."""
    sizes = {"decode_attention": {"SPLIT": 64, "KEYS": 16}, "merge_splits": {"PLACES": 4}}
    monkeypatch.setattr(module, "tuned", lambda operator, *_, **__: Config(sizes[operator]))


HEADS = pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block"),
    [(9, 3, 64, 16), (8, 1, 80, 48), (2, 2, 96, 128), (16, 2, 128, 64), (2, 1, 256, 32), (40, 2, 16, 112)],
)


@pytest.mark.parametrize(("dtype", "stored"), [(F32, F32), (F16, F16), (F16, INT8), (F32, FP8)], ids=str)
@HEADS
def test_every_shape_is_what_it_is_defined_as(
    dtype: torch.dtype, stored: torch.dtype, heads: int, kv_heads: int, head_dim: int, block: int
) -> None:
    lengths = [1, 270, 63]
    some = Sequences(lengths, dtype=dtype, stored=stored, heads=heads, kv_heads=kv_heads, head_dim=head_dim, block=block)
    found = some.attended()
    assert found.shape == some.q.shape
    assert found.dtype == dtype
    assert error(found, some.expected()) < TOLERANCE[dtype]


@pytest.mark.parametrize(("dtype", "stored"), TYPES, ids=TYPE_NAMES)
def test_lengths_may_differ_in_a_batch(dtype: torch.dtype, stored: torch.dtype) -> None:
    some = Sequences([1, 17, 500, 63, 1000], dtype=dtype, stored=stored)
    assert error(some.attended(), some.expected()) < TOLERANCE[dtype]


@pytest.mark.usefixtures("short_splits")
@pytest.mark.parametrize(
    ("window", "softcap", "sinks"),
    [(0, 2.0, False), (0, 0.0, True), (1, 0.0, False), (17, 0.0, False), (66, 2.0, True), (200, 0.0, True), (5000, 2.0, True)],
)
def test_windows_caps_and_sinks(window: int, softcap: float, sinks: bool) -> None:
    some = Sequences([1, 17, 400, 63], window=window, block=48)
    more = {"softcap": softcap, "sinks": 2 * torch.randn(4) if sinks else None}
    assert error(some.attended(**more), some.expected(**more)) < TOLERANCE[F32]


@pytest.mark.usefixtures("short_splits")
@pytest.mark.parametrize(("stored", "block", "window"), [(F32, 80, 0), (INT8, 16, 0), (F32, 16, 100), (INT8, 80, 100)])
def test_only_chosen_blocks_are_seen(stored: torch.dtype, block: int, window: int) -> None:
    some = Sequences([1, 17, 400, 63], stored=stored, block=block, window=window)
    chosen = some.choose(0.4, 40)
    more = {"softcap": 2.0, "sinks": torch.randn(4), "chosen": chosen}
    assert error(some.attended(**more), some.expected(**more)) < TOLERANCE[F32]
    # Without sinks a softmax over no keys would be 0 / 0.
    found, expected = some.attended(chosen=chosen), some.expected(chosen=chosen)
    assert error(found, expected) < TOLERANCE[F32]
    assert torch.equal(found == 0, expected == 0)


@pytest.mark.usefixtures("short_splits")
def test_blocks_that_are_not_chosen_are_not_read() -> None:
    some = Sequences([400, 90])
    chosen = some.choose(0.5, 30)
    expected = some.expected(chosen=chosen)
    for row in range(2):
        for head in range(2):
            left = torch.isin(torch.arange(some.table.shape[1]), chosen[row, head], invert=True)
            some.cache[some.table[row, left], :, :, :, head] = torch.nan
    assert error(some.attended(chosen=chosen), expected) < TOLERANCE[F32]


@pytest.mark.usefixtures("short_splits")
@pytest.mark.parametrize(("dtype", "stored"), [(F16, F16), (F16, INT8), (F32, FP8)], ids=str)
def test_all_blocks_chosen_is_the_same_bit_for_bit_as_no_choice(dtype: torch.dtype, stored: torch.dtype) -> None:
    some = Sequences([1, 300, 63], dtype=dtype, stored=stored, block=48)
    assert torch.equal(some.attended(chosen=some.choose(1.1, 7)), some.attended())


@pytest.mark.usefixtures("short_splits")
@pytest.mark.parametrize(("sparse", "window"), [(False, 0), (True, 0), (False, 70), (True, 70)])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(sparse: bool, window: int) -> None:
    some = Sequences([1, 17, 64, 65, 256, 400], dtype=F16, stored=INT8, window=window)
    more = {"sinks": torch.randn(4), "softcap": 3.0}
    chosen = some.choose(0.7, 40) if sparse else None
    # The bound of lengths decides whether results are merged or written at once: alone the short rows are.
    together = some.attended(chosen=chosen, longest=500, **more)
    for row in range(len(some.positions)):
        assert torch.equal(some.attended([row], chosen=chosen if chosen is None else chosen[[row]], **more)[0], together[row])


@pytest.mark.usefixtures("short_splits")
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_rows_of_one_sequence_see_it_to_different_lengths(index: torch.dtype) -> None:
    some = Sequences([300])
    drafted = Sequences([300] * 3)
    drafted.cache, drafted.positions = some.cache, torch.arange(297, 300)
    # One table for all, without a copy.
    drafted.table = some.table.to(index).expand(3, -1)
    found = decode_attention(drafted.q, some.cache, None, LAYER, drafted.table, drafted.positions, longest=300, **some.options)
    assert error(found, drafted.expected()) < TOLERANCE[F32]


def test_caches_may_be_larger_than_32_bits_can_address() -> None:
    """Blocks of 2^28 numbers, of which two are touched: the others take addresses, but no memory. In 32 bits both are one."""
    shape, stride = (LAYERS, 2, 16, 1, 16), 1 << 28
    near = torch.randint(-127, 128, (17, *shape), dtype=INT8)
    memory = torch.UntypedStorage(16 * stride + near[0].numel())
    cache = torch.tensor([], dtype=INT8).set_(memory).as_strided(near.shape, (stride, *near.stride()[1:]))
    cache[0], cache[16] = near[0], near[16]
    scales = torch.rand(near.shape[:5])
    q, table, positions = torch.randn(2, 2, 16), torch.tensor([[16, 0], [0, 16]], dtype=torch.int32), torch.tensor([31, 20])
    far, expected = (
        decode_attention(q, stored, scales, LAYER, table, positions, scale=0.02, longest=32) for stored in (cache, near)
    )
    assert torch.equal(far, expected)


@pytest.mark.usefixtures("short_splits")
@pytest.mark.parametrize("longest", [64, 200])
def test_rows_of_padding_are_zero(longest: int) -> None:
    some = Sequences([30, 60])
    expected = some.expected()
    some.positions[0] = -1
    some.table[0] = 1 << 40
    found = some.attended(longest=longest)
    assert torch.equal(found[0], torch.zeros_like(found[0]))
    assert error(found[1], expected[1]) < TOLERANCE[F32]


@pytest.mark.parametrize("stored", [INT8, FP8])
@pytest.mark.parametrize("magnitude", [1e-5, 1e-2, 1e3])
def test_scales_may_be_small_or_large_in_half_precision(stored: torch.dtype, magnitude: float) -> None:
    some = Sequences([200], dtype=F16, stored=stored, magnitude=magnitude)
    some.options["scale"] /= magnitude
    expected = some.expected()
    # Results below 6e-5 are multiples of 6e-8.
    assert error(some.attended(), expected) < TOLERANCE[F16] + (3e-2 if magnitude == 1e-5 else 0)


@pytest.mark.parametrize("stored", [INT8, FP8])
def test_values_that_are_all_zero_have_no_scale(stored: torch.dtype) -> None:
    some = Sequences([100], dtype=F16, stored=stored, magnitude=0.0)
    assert some.scales is not None
    some.cache, some.scales = torch.zeros(some.cache.shape).to(stored), torch.zeros_like(some.scales)
    assert torch.equal(some.attended(), torch.zeros_like(some.q))


def test_a_batch_may_be_empty() -> None:
    some = Sequences([5])
    none = decode_attention(some.q[:0], some.cache, None, LAYER, some.table[:0], some.positions[:0], longest=5, **some.options)
    assert none.shape == (0, 4, 16)


def refused() -> Iterator[tuple[str, dict[str, Any]]]:
    """What the message says, and the arguments that are not as they should be."""
    cache = torch.zeros(4, 2, 2, 16, 2, 16)
    yield "6 dimensions|a cache 6", {"cache": cache[0]}
    yield "not 32 of queries, 16 of the cache", {"q": torch.zeros(3, 6, 32)}
    yield "not 8 of queries, 8 of the cache", {"q": torch.zeros(3, 6, 8), "cache": torch.zeros(4, 2, 2, 16, 2, 8)}
    yield "5 heads cannot share 2", {"q": torch.zeros(3, 5, 16)}
    yield "not 8$", {"cache": torch.zeros(4, 2, 2, 8, 2, 16)}
    yield "not 144$", {"cache": torch.zeros(4, 2, 2, 144, 2, 16)}
    yield "layer 2 is not one of 2", {"layer": 2}
    yield "layer -1 is not one of 2", {"layer": -1}
    yield "float32 cannot read a cache of torch.float16", {"cache": cache.half()}
    yield "float64 cannot read", {"q": torch.zeros(3, 6, 16, dtype=torch.float64)}
    yield "heads must be contiguous", {"q": torch.zeros(3, 16, 6).transpose(1, 2)}
    yield "comes with scales", {"cache": cache.to(INT8)}
    yield "comes without scales", {"scales": torch.zeros(4, 2, 2, 16, 2)}
    yield r"scales must be .* not \[4, 2, 2, 16, 1\]", {"cache": cache.to(INT8), "scales": torch.zeros(4, 2, 2, 16, 1)}
    yield r"the table must be \[3, entries\]", {"table": torch.zeros(2, 4, dtype=torch.int64)}
    yield "the table must be", {"table": torch.zeros(3, 4)}
    yield "the table must be", {"table": torch.zeros(4, 3, dtype=torch.int64).t()}
    yield r"positions must be \[3\] int64", {"positions": torch.zeros(3, dtype=torch.int32)}
    yield "at most 0 keys", {"longest": 0}
    yield "a window of -1", {"window": -1}
    yield "a soft cap of -2.0", {"softcap": -2.0}
    yield r"sinks must be \[6\]", {"sinks": torch.zeros(2)}
    yield r"chosen must be contiguous \[3, 2, most\] int32", {"chosen": torch.zeros(3, 6, 4, dtype=torch.int32)}
    yield "chosen must be", {"chosen": torch.zeros(3, 2, 4, dtype=torch.int64)}
    yield "chosen must be", {"chosen": torch.zeros(3, 2, 0, dtype=torch.int32)}


@pytest.mark.parametrize(("message", "wrong"), list(refused()))
def test_other_arguments_are_refused(message: str, wrong: dict[str, Any]) -> None:
    right = {
        "q": torch.zeros(3, 6, 16),
        "cache": torch.zeros(4, 2, 2, 16, 2, 16),
        "scales": None,
        "layer": 0,
        "table": torch.zeros(3, 4, dtype=torch.int64),
        "positions": torch.zeros(3, dtype=torch.int64),
        "scale": 1.0,
        "longest": 10,
    }
    with pytest.raises(ValueError, match=message):
        decode_attention(**{**right, **wrong})
