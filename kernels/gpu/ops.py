"""The operators of one model on a GPU. See `kernels.ops.Ops`.

Batches are described by tensors of the host. What a plan needs is sent once, before the first layer, from pinned memory.
"""

from collections.abc import Sequence

import torch

from kernels.batch import AttentionShape, DecodeBatch, KvPool, LayerPlace, PrefillChunk
from kernels.gpu.decode_attention import decode_attention
from kernels.gpu.gated import gated
from kernels.gpu.heads import prepare_heads, slots_of
from kernels.gpu.norm import add_norm
from kernels.gpu.prefill_attention import prefill_attention


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy from the host, without waiting for it where that is possible."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


class TritonOps:
    """Every result is a tensor of its own."""

    def __init__(
        self,
        shape: AttentionShape,
        pools: Sequence[KvPool],
        layers: Sequence[LayerPlace],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._shape, self._pools, self._layers, self._dtype, self._device = shape, pools, layers, dtype, device

    def add_norm(
        self,
        residual: torch.Tensor,
        delta: torch.Tensor | None,
        weight: torch.Tensor,
        post: torch.Tensor | None = None,
        *,
        exact: bool = False,
    ) -> torch.Tensor:
        """Add and norm; see `kernels.ops.Ops.add_norm`."""
        dtype = torch.float32 if exact else self._dtype
        return add_norm(residual, delta, weight, post, epsilon=self._shape.epsilon, dtype=dtype)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Gate; see `kernels.ops.Ops.gated`."""
        return gated(gate_up, gelu=self._shape.gelu)

    def decode(self, batch: DecodeBatch) -> "DecodeAttention":
        """Plan; see `kernels.ops.Ops.decode`."""
        positions = sent(batch.positions, self._device)
        tables = [sent(table, self._device) for table in batch.tables]
        slots = [slots_of(table, positions, pool.block) for table, pool in zip(tables, self._pools, strict=True)]
        return DecodeAttention(self._shape, self._pools, self._layers, positions, tables, slots, batch.longest)

    def prefill(self, chunks: Sequence[PrefillChunk]) -> "PrefillAttention":
        """Plan; see `kernels.ops.Ops.prefill`."""
        return PrefillAttention(self._shape, self._pools, self._layers, chunks, self._device)


class DecodeAttention:
    """A planned batch of single tokens.

    Args:
        positions: [rows] int64, -1 for a row that only fills the batch.
        tables: for every pool [rows, entries] int64.
        slots: for every pool [rows] int64: where each token's keys go; below 0 for nowhere.
        longest: no position is as large.
    """

    def __init__(
        self,
        shape: AttentionShape,
        pools: Sequence[KvPool],
        layers: Sequence[LayerPlace],
        positions: torch.Tensor,
        tables: Sequence[torch.Tensor],
        slots: Sequence[torch.Tensor],
        longest: int,
    ) -> None:
        self._shape, self._pools, self._layers = shape, pools, layers
        self._positions, self._tables, self._slots, self._longest = positions, tables, slots, longest

    def __call__(self, qkv: torch.Tensor, layer: int) -> torch.Tensor:
        """Attend; see `kernels.ops.Attention`."""
        shape, place = self._shape, self._layers[layer]
        pool = self._pools[place.pool]
        q = _prepared(shape, place, pool, qkv, self._positions, self._slots[place.pool])
        out = decode_attention(
            q,
            pool.cache,
            pool.scales,
            place.index,
            self._tables[place.pool],
            self._positions,
            scale=shape.scale,
            longest=self._longest,
            window=pool.window,
            softcap=shape.softcap,
        )
        return out.flatten(1)


class PrefillAttention:
    """A planned batch of parts of prompts."""

    def __init__(
        self,
        shape: AttentionShape,
        pools: Sequence[KvPool],
        layers: Sequence[LayerPlace],
        chunks: Sequence[PrefillChunk],
        device: torch.device,
    ) -> None:
        self._shape, self._pools, self._layers = shape, pools, layers
        counts = torch.tensor([chunk.count for chunk in chunks])
        starts = torch.tensor([chunk.start for chunk in chunks])
        positions = torch.cat([torch.arange(chunk.start, chunk.start + chunk.count) for chunk in chunks])
        which = torch.repeat_interleave(torch.arange(len(chunks)), counts)
        entries = max((chunk.start + chunk.count - 1) // pools[0].block + 1 for chunk in chunks)
        tables = [torch.stack([chunk.tables[g][:entries] for chunk in chunks]) for g in range(len(pools))]
        slots = [slots_of(table, positions, pool.block, which) for table, pool in zip(tables, pools, strict=True)]
        firsts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int()
        self._longest = int(counts.max())
        self._starts, self._firsts, self._positions = (sent(one, device) for one in (starts, firsts, positions))
        self._tables, self._slots = ([sent(one, device) for one in many] for many in (tables, slots))

    def __call__(self, qkv: torch.Tensor, layer: int) -> torch.Tensor:
        """Attend; see `kernels.ops.Attention`."""
        shape, place = self._shape, self._layers[layer]
        pool = self._pools[place.pool]
        q = _prepared(shape, place, pool, qkv, self._positions, self._slots[place.pool])
        out = prefill_attention(
            q,
            pool.cache,
            pool.scales,
            place.index,
            self._tables[place.pool],
            self._starts,
            self._firsts,
            scale=shape.scale,
            longest=self._longest,
            window=pool.window,
            softcap=shape.softcap,
        )
        return out.flatten(1)


def _prepared(
    shape: AttentionShape,
    place: LayerPlace,
    pool: KvPool,
    qkv: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
) -> torch.Tensor:
    """Norm, rotate, store keys and values; returns the queries, [rows, heads, head_dim]."""
    return prepare_heads(
        qkv,
        positions,
        place.angles,
        slots,
        pool.cache,
        pool.scales,
        place.index,
        epsilon=shape.epsilon,
        q_norm=place.q_norm,
        k_norm=place.k_norm,
    )
