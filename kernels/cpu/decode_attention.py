"""Attention of single queries over a paged cache: split over the keys, then joined.

A row has the same bits alone and in any batch, and for any number of threads.

Source: Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference" (2023).
"""

import torch

from kernels.batch import AttentionShape, KvPool
from kernels.cpu.buffers import Buffers
from kernels.cpu.decode_kernel import (
    SPLIT,
    decode_bf16,
    decode_bf16_int8,
    decode_f32,
    decode_f32_int8,
    partial_floats,
    scratch_bytes,
)
from kernels.cpu.launch import Launch
from kernels.cpu.vectors import LANES

_PER_LAYER = slice(1, 4)
_KERNELS = {
    (torch.bfloat16, torch.bfloat16): decode_bf16,
    (torch.bfloat16, torch.int8): decode_bf16_int8,
    (torch.float32, torch.float32): decode_f32,
    (torch.float32, torch.int8): decode_f32_int8,
}


class DecodeAttention:
    """Attention over one pool's cache, whose keys and values are there already.

    Args:
        tables: [rows, entries] int64: entry t // block is the block that holds token t. Entries before the window are not read.
        lengths: [rows] int64, at least 1: keys of each row, its own included.
        longest: the greatest of `lengths`.
        out: [rows, heads * head_dim] bfloat16 or float32, where results go.
        buffers: for what a call needs on the way.
        threads: the size of the team.

    Raises:
        ValueError: no such attention is possible.
    """

    __slots__ = ("_launch", "_layer", "_values")

    def __init__(
        self,
        shape: AttentionShape,
        pool: KvPool,
        tables: torch.Tensor,
        lengths: torch.Tensor,
        longest: int,
        out: torch.Tensor,
        buffers: Buffers,
        threads: int,
    ) -> None:
        rows, group, size, cache = len(lengths), shape.heads // shape.kv_heads, shape.head_dim, pool.cache
        if size % LANES or shape.heads % shape.kv_heads:
            raise ValueError(f"decode attention cannot do {shape.heads} heads of {size} over {shape.kv_heads} key/value heads")
        pieces = -(-longest // SPLIT)
        scratch = buffers.take("decode scratch", threads, scratch_bytes(group), torch.uint8)
        partials = buffers.take("decode partials", rows * shape.heads * pieces, partial_floats(size), torch.float32)
        self._launch = Launch(
            _KERNELS[out.dtype, cache.dtype],
            *(0, 0, 0, out, cache, pool.scales, tables, lengths, scratch, partials),
            *(rows, shape.row, tables.stride(0), cache.stride(0) // size, cache.stride(3) // size, pool.block),
            *(shape.kv_heads, group, size, pieces, pool.window, shape.scale, shape.softcap),
            threads=threads,
        )
        self._layer, self._values = cache.stride(1) // size, cache.stride(2) // size

    def __call__(self, qkv: int, layer: int) -> None:
        """Attend.

        Args:
            qkv: address of the first row; queries are [heads * head_dim] of `out`'s type, rotated and not scaled.
            layer: which of the cache's layers.
        """
        keys = layer * self._layer
        self._launch.arguments[_PER_LAYER] = (qkv, keys, keys + self._values)
        self._launch()
