"""Attention of a planned batch on a CPU: what does not depend on the layer is worked out once, the rest is a few addresses."""

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from kernels.batch import AttentionShape, DecodeBatch, KvPool, LayerPlace, PrefillChunk
from kernels.cpu.buffers import Buffers
from kernels.cpu.decode_attention import DecodeAttention
from kernels.cpu.launch import Launch, encoded
from kernels.cpu.prefill_attention import PrefillAttention
from kernels.cpu.prefill_kernel import KEYS
from kernels.cpu.rope import rope_store_bf16, rope_store_bf16_int8, rope_store_f32, rope_store_f32_int8
from kernels.reference import read

_ROWS_FOR_A_TEAM = 4
_ROPE = {
    (torch.bfloat16, torch.bfloat16): rope_store_bf16,
    (torch.bfloat16, torch.int8): rope_store_bf16_int8,
    (torch.float32, torch.float32): rope_store_f32,
    (torch.float32, torch.int8): rope_store_f32_int8,
}


class _Store:
    """Norm, rotation and the write into the cache, for one pool's layers."""

    def __init__(
        self,
        shape: AttentionShape,
        pool: KvPool,
        positions: torch.Tensor,
        blocks: torch.Tensor,
        dtype: torch.dtype,
        threads: int,
    ) -> None:
        """`blocks` holds the block of each row's token, [rows] int64."""
        cache = pool.cache
        places = blocks * cache.stride(0) + positions % pool.block * cache.stride(3)
        rows = positions.shape[0]
        self._launch = Launch(
            _ROPE[dtype, cache.dtype],
            *(0, cache, pool.scales, positions, places, 0, 0, 0, rows, shape.row),
            *(shape.heads, shape.kv_heads, shape.head_dim, 0, 0, shape.epsilon),
            threads=threads if rows >= _ROWS_FOR_A_TEAM else 1,
        )
        self._layer, self._value = cache.stride(1), cache.stride(2)

    def __call__(self, qkv: torch.Tensor, place: LayerPlace) -> None:
        arguments, key = self._launch.arguments, place.index * self._layer
        arguments[1] = qkv.data_ptr()
        arguments[6:9] = place.angles.data_ptr(), encoded(place.q_norm), encoded(place.k_norm)
        arguments[14:16] = key, key + self._value
        self._launch()


class CpuDecode:
    """Single tokens; see `kernels.ops.Ops.decode`."""

    def __init__(
        self,
        shape: AttentionShape,
        pools: Sequence[KvPool],
        layers: Sequence[LayerPlace],
        batch: DecodeBatch,
        buffers: Buffers,
        threads: int,
    ) -> None:
        self._layers = layers
        self._out = buffers.take("attended", batch.positions.shape[0], shape.heads * shape.head_dim)
        lengths = batch.positions + 1
        longest = int(lengths.max())
        self._stores: list[_Store] = []
        self._attentions: list[DecodeAttention] = []
        for pool, tables in zip(pools, batch.tables, strict=True):
            blocks = tables.gather(1, (batch.positions // pool.block)[:, None])[:, 0]
            self._stores.append(_Store(shape, pool, batch.positions, blocks, self._out.dtype, threads))
            self._attentions.append(DecodeAttention(shape, pool, tables, lengths, longest, self._out, buffers, threads))

    def __call__(self, qkv: torch.Tensor, layer: int) -> torch.Tensor:
        """Attend; see `kernels.ops.Attention`."""
        place = self._layers[layer]
        self._stores[place.pool](qkv, place)
        self._attentions[place.pool](qkv.data_ptr(), place.index)
        return self._out


class CpuPrefill:
    """Parts of prompts; see `kernels.ops.Ops.prefill`."""

    def __init__(
        self,
        shape: AttentionShape,
        pools: Sequence[KvPool],
        layers: Sequence[LayerPlace],
        chunks: Sequence[PrefillChunk],
        buffers: Buffers,
        threads: int,
    ) -> None:
        rows = sum(chunk.count for chunk in chunks)
        self._shape, self._pools, self._layers, self._chunks = shape, pools, layers, chunks
        self._out = buffers.take("attended", rows, shape.heads * shape.head_dim)
        self._threads = threads
        positions = torch.cat([torch.arange(chunk.start, chunk.start + chunk.count) for chunk in chunks])
        self._stores = []
        self._attentions: list[PrefillAttention | None] = []
        for number, pool in enumerate(pools):
            blocks = torch.cat(
                [chunk.tables[number][torch.arange(chunk.start, chunk.start + chunk.count) // pool.block] for chunk in chunks]
            )
            self._stores.append(_Store(shape, pool, positions, blocks, self._out.dtype, threads))
            self._attentions.append(None if pool.scales is not None else self._attention(pool.cache))

    def _attention(self, cache: torch.Tensor) -> PrefillAttention:
        shape = self._shape
        return PrefillAttention(
            cache,
            heads=shape.heads,
            query_stride=shape.row,
            scale=shape.scale,
            softcap=shape.softcap,
            threads=self._threads,
        )

    def __call__(self, qkv: torch.Tensor, layer: int) -> torch.Tensor:
        """Attend; see `kernels.ops.Attention`."""
        place = self._layers[layer]
        pool, attention = self._pools[place.pool], self._attentions[place.pool]
        self._stores[place.pool](qkv, place)
        for chunk in self._chunks:
            q, out, table = qkv[chunk.row], self._out[chunk.row], chunk.tables[place.pool]
            if attention is not None:
                attention(q.data_ptr(), out.data_ptr(), table.data_ptr(), chunk.start, chunk.count, place.index, pool.window)
            else:
                self._attend_int8(pool, place, chunk, q, out)
        return self._out

    def _attend_int8(self, pool: KvPool, place: LayerPlace, chunk: PrefillChunk, q: torch.Tensor, out: torch.Tensor) -> None:
        """Widen what the chunk sees into one long block, and attend to that.

        The block begins where a tile of keys does: sums are cut at the same places wherever a chunk begins.
        """
        end = chunk.start + chunk.count
        first = max(0, chunk.start - pool.window + 1) // pool.block * pool.block if pool.window else 0
        keys, values = read(pool, place.index, chunk.tables[place.pool], first, end)
        origin = first // KEYS * KEYS
        widened = F.pad(torch.stack([keys, values]), (0, 0, 0, 0, first - origin, 0)).to(self._out.dtype)[None, None]
        table = torch.zeros(1, dtype=torch.int64)
        start = chunk.start - origin
        self._attention(widened)(q.data_ptr(), out.data_ptr(), table.data_ptr(), start, chunk.count, 0, pool.window)
