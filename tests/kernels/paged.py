"""A paged cache in which all that must not be read is NaN, and batches over it, for any implementation of the operators."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from kernels.batch import AttentionShape, DecodeBatch, KvPool, LayerPlace, PrefillChunk

F32, BF16, INT8 = torch.float32, torch.bfloat16, torch.int8
LAYERS = 2
"""In each of two pools: one that sees all, one with a window."""


@dataclass(frozen=True)
class Case:
    """What a batch runs on. `stored` is the type of the cache; int8 comes with scales."""

    dtype: torch.dtype = F32
    stored: torch.dtype = F32
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    block: int = 16
    window: int = 40
    softcap: float = 0.0
    qk_norm: bool = False
    seed: int = 0


TYPES = [(F32, F32), (BF16, BF16), (F32, INT8), (BF16, INT8)]
"""Of activations and cache."""

HEADS = [(9, 3, 64), (4, 1, 256), (14, 2, 64), (8, 8, 128), (16, 1, 16)]

cases = st.builds(
    Case,
    block=st.sampled_from([4, 8, 16, 32, 100]),
    window=st.sampled_from([1, 5, 16, 100, 200]),
    softcap=st.sampled_from([0.0, 0.0, 5.0]),
    qk_norm=st.booleans(),
    seed=st.integers(0, 1 << 30),
).flatmap(
    lambda case: st.tuples(st.sampled_from(TYPES), st.sampled_from(HEADS)).map(
        lambda more: replace(
            case, dtype=more[0][0], stored=more[0][1], heads=more[1][0], kv_heads=more[1][1], head_dim=more[1][2]
        )
    )
)


class Paged:
    """Sequences of some lengths whose newest tokens are to be computed; all before them are in the cache.

    Args:
        spans: of each sequence, how many tokens are in the cache and how many are to be computed.
    """

    def __init__(self, case: Case, spans: list[tuple[int, int]]) -> None:
        self.case, self.spans = case, spans
        self.dice = torch.Generator().manual_seed(case.seed)
        self.shape = AttentionShape(
            heads=case.heads,
            kv_heads=case.kv_heads,
            head_dim=case.head_dim,
            scale=1.5 * case.head_dim**-0.5,
            epsilon=1e-5,
            softcap=case.softcap,
        )
        longest = max(old + new for old, new in spans)
        entries = -(-longest // case.block)
        angles = self.random(longest, case.head_dim // 2)
        self.angles = torch.cat([angles.cos(), angles.sin()], -1)
        self.windows = (0, case.window)
        self.tables = [torch.zeros(len(spans), entries, dtype=torch.int64) for _ in self.windows]
        self.memory = [self._pool(pool, entries * len(spans) + 2) for pool in range(len(self.windows))]
        rows = sum(new for _, new in spans)
        self.qkv = [self.random(rows, self.shape.row).to(case.dtype) for _ in range(2 * LAYERS)]

    def random(self, *size: int) -> torch.Tensor:
        """Normally distributed numbers, float32."""
        return torch.randn(*size, generator=self.dice)

    def _pool(self, pool: int, blocks: int) -> KvPool:
        """Fill tables and cache. The last block is one that nobody may read; unused entries of tables lead there."""
        case, window = self.case, self.windows[pool]
        cache = torch.full((blocks, LAYERS, 2, case.block, case.kv_heads, case.head_dim), torch.nan)
        order, table = torch.randperm(blocks - 1, generator=self.dice), self.tables[pool]
        table.fill_(blocks - 1)
        for row, (old, new) in enumerate(self.spans):
            first = max(0, old - window + 1) // case.block if window else 0
            last = -(-(old + new) // case.block)
            table[row, first:last] = order[row * table.shape[1] :][first:last]
            at = torch.arange(first * case.block, old)
            cache[table[row, at // case.block], :, :, at % case.block] = self.random(
                len(at), LAYERS, 2, case.kv_heads, case.head_dim
            )
        if case.stored != INT8:
            return KvPool(cache.to(case.stored), None, window)
        scales = cache.abs().amax(-1) / 127
        return KvPool((cache / scales[..., None]).nan_to_num().round().to(INT8), scales, window)

    def pools(self) -> list[KvPool]:
        """The cache, for one implementation to write into."""
        return [
            KvPool(pool.cache.clone(), None if pool.scales is None else pool.scales.clone(), pool.window)
            for pool in self.memory
        ]

    def layers(self) -> list[LayerPlace]:
        """Layers of both pools in turn, some of them with norms."""
        norm = torch.linspace(0.5, 1.5, self.case.head_dim) if self.case.qk_norm else None
        return [
            LayerPlace(pool=pool, index=index, angles=self.angles, q_norm=norm, k_norm=None if norm is None else norm.flip(0))
            for index in range(LAYERS)
            for pool in range(len(self.windows))
        ]

    def decode_batch(self, sequences: list[int] | None = None) -> DecodeBatch:
        """A row for each new token; those of a sequence stand one after the other."""
        rows = [(s, old + i) for s, (old, new) in enumerate(self.spans) for i in range(new)]
        kept = [(s, position) for s, position in rows if sequences is None or s in sequences]
        chosen = [s for s, _ in kept]
        # Entries behind the longest of the batch are not there, as in the engine.
        entries = max(position for _, position in kept) // self.case.block + 1
        longest = max(position for _, position in kept) + 1
        return DecodeBatch(torch.tensor([p for _, p in kept]), tuple(table[chosen, :entries] for table in self.tables), longest)

    def chunks(self) -> list[PrefillChunk]:
        """A chunk for the new tokens of each sequence."""
        return list(self._chunks())

    def _chunks(self) -> Iterator[PrefillChunk]:
        row = 0
        for s, (old, new) in enumerate(self.spans):
            yield PrefillChunk(row, new, old, tuple(table[s] for table in self.tables))
            row += new

    def rows_of(self, sequence: int) -> slice:
        """Which rows of a batch are a sequence's."""
        first = sum(new for _, new in self.spans[:sequence])
        return slice(first, first + self.spans[sequence][1])


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative, in the Frobenius norm."""
    return float((found.double() - exact.double()).norm() / exact.double().norm())


def widened(pool: KvPool) -> torch.Tensor:
    """What a cache holds, as float32."""
    return pool.cache.float() if pool.scales is None else pool.cache.float() * pool.scales[..., None]
