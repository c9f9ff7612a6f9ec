"""Causal attention of a chunk of queries over a paged cache.

The bits of a row are the same for any number of threads and for any chunking of a prompt. Where the CPU multiplies bfloat16,
weights are rounded to it before they meet the values; all else is float32.
"""

import itertools
import math

import torch

from kernels.cpu.launch import Launch
from kernels.cpu.prefill_kernel import KEYS, attend_bf16, attend_bf16_widened, attend_f32
from kernels.cpu.tiles import ROWS
from kernels.cpu.vectors import HAS_BF16, LANES

_MOST_ROWS = 384  # of a task: packing takes a few percent of its time, and what a thread uses fits into 1 MiB
_TASKS_PER_THREAD = 6
_LINE = 64  # bytes
_PER_CHUNK = slice(1, 11)

_ENTRIES = {(4, 4): attend_f32, (2, 4): attend_bf16_widened, (2, 2): attend_bf16}  # bytes in the cache, bytes in a tile


def _rows(group: int) -> int:
    """The most rows of a task, whole strips."""
    return -(-max(_MOST_ROWS // group, 1) * group // ROWS) * ROWS


def _parts(head_dim: int, group: int, size: int) -> list[int]:
    """Bytes of what a thread has in its scratch, in the kernel's order; `size` is that of a number in a tile."""
    strip, tile, rows = ROWS * KEYS, KEYS * head_dim * size, _rows(group)
    of_tile = (4 * strip, size * strip, 4 * LANES, 8 * KEYS, 8 * KEYS, 4 * head_dim, tile, tile)
    of_task = (rows * head_dim * size, 4 * rows * head_dim, 4 * rows * LANES, 4 * rows // ROWS * LANES)
    return [-(-part // _LINE) * _LINE for part in of_tile + of_task]


def _size(cache: torch.Tensor, widen: bool) -> int:
    return 2 if cache.dtype == torch.bfloat16 and HAS_BF16 and not widen else 4


def scratch_bytes(cache: torch.Tensor, heads: int, threads: int, *, widen: bool = False) -> int:
    """Return what `PrefillAttention` needs as scratch. Arguments as there."""
    *_, kv_heads, head_dim = cache.shape
    return threads * sum(_parts(head_dim, heads // kv_heads, _size(cache, widen))) + _LINE


class PrefillAttention:
    """Attention over one cache.

    Args:
        cache: [blocks, layers, 2, block, kv_heads, head_dim] float32 or bfloat16, keys before values. Numbers of a head are
            next to each other, a multiple of 16.
        heads: query heads, a multiple of the key/value heads; head h reads key/value head h // (heads // kv_heads).
        query_stride: numbers from the row of one query to the next.
        scale: positive; multiplies the dot products.
        softcap: scores s become softcap * tanh(s / softcap), slowly; 0 is none (Gemma 2 report, 2024, section 2).
        threads: the size of the team.
        scratch: [`scratch_bytes`] uint8, used during calls only. None allocates it.
        widen: multiply bfloat16 as float32, as CPUs do that cannot multiply it.

    Raises:
        ValueError: no such attention is possible.
    """

    __slots__ = ("_cache", "_kv_heads", "_launch", "_most", "_scratch", "_threads")

    def __init__(
        self,
        cache: torch.Tensor,
        *,
        heads: int,
        query_stride: int,
        scale: float,
        softcap: float = 0.0,
        threads: int,
        scratch: torch.Tensor | None = None,
        widen: bool = False,
    ) -> None:
        *_, block, kv_heads, head_dim = cache.shape
        if cache.dtype not in (torch.bfloat16, torch.float32):
            raise ValueError(f"prefill attention reads a cache of bfloat16 or float32, not {cache.dtype}")
        if head_dim % LANES or heads % kv_heads or cache.stride(-1) != 1:
            raise ValueError(f"prefill attention cannot do {heads} heads of {head_dim} over {kv_heads} key/value heads")
        needed = scratch_bytes(cache, heads, threads, widen=widen)
        if scratch is None:
            scratch = torch.empty(needed, dtype=torch.uint8)
        if scratch.nbytes < needed:
            raise ValueError(f"prefill attention needs {needed} bytes of scratch, not {scratch.nbytes}")
        group, number, size = heads // kv_heads, cache.element_size(), _size(cache, widen)
        parts = _parts(head_dim, group, size)
        self._cache, self._scratch = cache, scratch
        self._kv_heads, self._threads, self._most = kv_heads, threads, max(_MOST_ROWS // group, 1)
        self._launch = Launch(
            _ENTRIES[number, size],
            *[0] * (_PER_CHUNK.stop - _PER_CHUNK.start),
            *(query_stride * number, cache.stride(0) * number, cache.stride(3) * number, cache.stride(4) * number),
            *(block, kv_heads, group, head_dim, size),
            *(math.log2(math.e) * (1.0 if softcap else scale), float(softcap), float(scale)),
            *(-(-scratch.data_ptr() // _LINE) * _LINE, sum(parts), *itertools.accumulate(parts[:-1], initial=0)),
            threads=threads,
        )

    def __call__(self, queries: int, out: int, table: int, start: int, count: int, layer: int, window: int = 0) -> None:
        """Attend from queries of one sequence, whose keys and values are in the cache already.

        Args:
            queries: address of the first query, [heads * head_dim] of the cache's type, rotated and not scaled.
            out: address of [count, heads * head_dim] of the cache's type.
            table: address of int64: entry t // block is the block that holds token t. Entries before the window are not read.
            start: position of the first query.
            count: queries.
            layer: which of the cache's layers.
            window: keys that a query sees, itself included; 0 is all.
        """
        number = self._cache.element_size()
        keys = self._cache.data_ptr() + layer * self._cache.stride(1) * number
        values = keys + self._cache.stride(2) * number
        each = -(-count * self._kv_heads // (_TASKS_PER_THREAD * self._threads))
        per_task = max(1, min(self._most, each))
        self._launch.arguments[_PER_CHUNK] = (0, queries, out, table, start, count, keys, values, window, per_task)
        self._launch()
