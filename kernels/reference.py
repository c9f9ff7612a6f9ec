"""Every operator in plain torch: the definition that the fast ones are tested against, and the way they work on any device."""

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from kernels.batch import AttentionShape, DecodeBatch, KvPool, LayerPlace, PrefillChunk


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Divide each row by its root mean square, then multiply by `weight`. float32 in and out."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary embedding, halves against each other.

    Args:
        x: [rows, heads, head_dim] float32.
        angles: [rows, head_dim] float32: cosines, then sines.
    """
    low, high = x.chunk(2, -1)
    cos, sin = angles[:, None].chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
    *,
    first: int,
    window: int,
    scale: float,
    softcap: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention with grouped heads.

    Args:
        q: [rows, heads, head_dim] float32, at `positions` [rows].
        k, v: [keys, kv_heads, head_dim] float32, at positions from `first` on.
        window: keys that a query sees, itself included; 0 is all.
        sinks: [heads] float32: one more score in the denominator of each head's softmax, or None.

    Returns:
        [rows, heads * head_dim] float32.
    """
    rows, heads, head_dim = q.shape
    grouped = q.view(rows, k.shape[1], -1, head_dim)
    scores = torch.einsum("rkgd,tkd->kgrt", grouped, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    keys = torch.arange(first, first + k.shape[0], device=q.device)
    hidden = keys > positions[:, None]
    if window:
        hidden |= keys <= positions[:, None] - window
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.view(k.shape[1], -1, 1, 1).expand(-1, -1, rows, 1)], -1)
    weights = torch.softmax(scores, -1)[..., : k.shape[0]]
    return torch.einsum("kgrt,tkd->rkgd", weights, v).reshape(rows, heads * head_dim)


class TorchOps:
    """The operators of one model on one device. See `kernels.ops.Ops`."""

    def __init__(
        self, shape: AttentionShape, pools: Sequence[KvPool], layers: Sequence[LayerPlace], dtype: torch.dtype
    ) -> None:
        self._shape, self._pools, self._layers, self._dtype = shape, pools, layers, dtype

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
        if delta is not None:
            added = delta.float()
            residual += added if post is None else rms_norm(added, post, self._shape.epsilon)
        return rms_norm(residual, weight, self._shape.epsilon).to(torch.float32 if exact else self._dtype)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Gate; see `kernels.ops.Ops.gated`."""
        gate, up = gate_up.float().chunk(2, -1)
        return ((F.gelu(gate, approximate="tanh") if self._shape.gelu else F.silu(gate)) * up).to(self._dtype)

    def decode(self, batch: DecodeBatch) -> "TorchAttention":
        """Plan; see `kernels.ops.Ops.decode`."""
        chunks = [
            PrefillChunk(row, 1, position, tuple(table[row] for table in batch.tables))
            for row, position in enumerate(batch.positions.tolist())
        ]
        return TorchAttention(self._shape, self._pools, self._layers, self._dtype, chunks)

    def prefill(self, chunks: Sequence[PrefillChunk]) -> "TorchAttention":
        """Plan; see `kernels.ops.Ops.prefill`."""
        return TorchAttention(self._shape, self._pools, self._layers, self._dtype, chunks)


class TorchAttention:
    """A planned batch. All keys are written before any query reads: the rows of a draft see each other."""

    def __init__(
        self,
        shape: AttentionShape,
        pools: Sequence[KvPool],
        layers: Sequence[LayerPlace],
        dtype: torch.dtype,
        chunks: Sequence[PrefillChunk],
    ) -> None:
        self._shape, self._pools, self._layers, self._dtype, self._chunks = shape, pools, layers, dtype, chunks

    def __call__(self, qkv: torch.Tensor, layer: int) -> torch.Tensor:
        """Attend; see `kernels.ops.Attention`."""
        shape, place = self._shape, self._layers[layer]
        pool = self._pools[place.pool]
        heads = qkv.float().view(len(qkv), -1, shape.head_dim)
        q, k, v = torch.split(heads, [shape.heads, shape.kv_heads, shape.kv_heads], 1)
        if place.q_norm is not None:
            q = rms_norm(q, place.q_norm, shape.epsilon)
        if place.k_norm is not None:
            k = rms_norm(k, place.k_norm, shape.epsilon)
        positions = torch.cat([torch.arange(chunk.start, chunk.start + chunk.count) for chunk in self._chunks])
        angles = place.angles[positions]
        # Rounded where the fast operators round: keys as they are stored, queries as they are kept.
        q, k = rotate(q, angles).to(self._dtype).float(), rotate(k, angles).to(self._dtype)
        for chunk in self._chunks:
            rows = slice(chunk.row, chunk.row + chunk.count)
            write(pool, place.index, chunk, chunk.tables[place.pool], k[rows], v[rows].to(self._dtype))
        out = torch.empty(qkv.shape[0], shape.heads * shape.head_dim)
        for chunk in self._chunks:
            rows, end = slice(chunk.row, chunk.row + chunk.count), chunk.start + chunk.count
            first = max(0, chunk.start - pool.window + 1) // pool.block * pool.block if pool.window else 0
            keys, values = read(pool, place.index, chunk.tables[place.pool], first, end)
            out[rows] = attend(
                q[rows],
                keys,
                values,
                torch.arange(chunk.start, end),
                first=first,
                window=pool.window,
                scale=shape.scale,
                softcap=shape.softcap,
            )
        return out.to(self._dtype)


def write(pool: KvPool, layer: int, chunk: PrefillChunk, table: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Store [count, kv_heads, head_dim] keys and values of a chunk; an int8 cache gets a scale per token and head."""
    at = torch.arange(chunk.start, chunk.start + chunk.count)
    blocks, places = table[at // pool.block], at % pool.block
    for kind, values in enumerate((k, v)):
        if pool.scales is None:
            pool.cache[blocks, layer, kind, places] = values.to(pool.cache.dtype)
            continue
        scales = values.float().abs().amax(-1) / 127
        inverse = torch.where(scales > 0, 1 / scales, 0)
        pool.scales[blocks, layer, kind, places] = scales
        pool.cache[blocks, layer, kind, places] = (values.float() * inverse[..., None]).round().to(torch.int8)


def read(pool: KvPool, layer: int, table: torch.Tensor, first: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gather keys and values first <= t < end as [keys, kv_heads, head_dim] float32."""
    at = torch.arange(first, end)
    blocks, places = table[at // pool.block], at % pool.block
    both = pool.cache[blocks, layer, :, places].float()
    if pool.scales is not None:
        both = both * pool.scales[blocks, layer, :, places][..., None]
    return both[:, 0], both[:, 1]
