"""Chunks of prompts over a paged cache in which all that must not be read is not a number."""

from dataclasses import dataclass

import torch

from kernels.batch import KvPool
from kernels.reference import read

F16, F32, INT8, FP8 = torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn
LAYER = 1
"""Of three: the one that has numbers."""

LIMITS = {F32: 2e-6, F16: 1.5e-3}
"""Relative errors in the Frobenius norm: roundings of sums, and of weights and results to float16."""


@dataclass(frozen=True)
class Case:
    """What chunks run on: `spans` are, of each, its first position and its number of queries."""

    spans: tuple[tuple[int, int], ...]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    block: int = 16
    dtype: torch.dtype = F32
    stored: torch.dtype = F32
    window: int = 0


class Chunks:
    """Random numbers for a case. Queries lie in wider rows, as they do behind a product with the weights."""

    def __init__(self, case: Case) -> None:
        self.case, (heads, kv_heads, head_dim) = case, (case.heads, case.kv_heads, case.head_dim)
        counts = [count for _, count in case.spans]
        self.starts = torch.tensor([start for start, _ in case.spans])
        self.firsts = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        self.longest = max(counts)
        self.q = torch.randn(sum(counts), heads + 2 * kv_heads, head_dim).to(case.dtype)[:, :heads]
        entries = -(-max(start + count for start, count in case.spans) // case.block)
        blocks = entries * len(counts) + 1
        order = torch.randperm(blocks - 1).view(len(counts), entries)
        # Entries that must not be read lead to the last block.
        self.tables = torch.full((len(counts), entries + 1), blocks - 1)
        numbers = torch.full((blocks, 3, 2, case.block, kv_heads, head_dim), torch.nan)
        for row, (start, count) in enumerate(case.spans):
            low = max(0, start - case.window + 1) if case.window else 0
            at = torch.arange(low, start + count)
            self.tables[row, low // case.block : -(-(start + count) // case.block)] = order[
                row, low // case.block : -(-(start + count) // case.block)
            ]
            numbers[self.tables[row, at // case.block], LAYER, :, at % case.block] = torch.randn(len(at), 2, kv_heads, head_dim)
        self.scales: torch.Tensor | None = None
        if case.stored in (INT8, FP8):
            self.scales = numbers.abs().amax(-1) / (127 if case.stored == INT8 else 448)
            numbers = numbers / self.scales[..., None]
            numbers = numbers.nan_to_num().round() if case.stored == INT8 else numbers
        self.cache = numbers.to(case.stored)

    def rows(self, chunk: int) -> slice:
        """Which rows are a chunk's."""
        return slice(int(self.firsts[chunk]), int(self.firsts[chunk + 1]))

    def keys(self, chunk: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        """The position of the first key that a chunk may see, and all its keys and values up to its own last, float32."""
        start, count = self.case.spans[chunk]
        low = max(0, start - self.case.window + 1) if self.case.window else 0
        k, v = read(KvPool(self.cache, self.scales), LAYER, self.tables[chunk], low, start + count)
        return low, k, v


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative, in the Frobenius norm."""
    return float((found.double() - exact.double()).norm() / exact.double().norm())
