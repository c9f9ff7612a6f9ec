"""Attention over a paged cache: one token of many sequences, and long prompts, dense and sparse."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional as F

from kernels.bench.case import Case, Work
from kernels.gpu.decode_attention import decode_attention
from kernels.gpu.prefill_attention import prefill_attention
from kernels.reference import attend
from kernels.sparsity import Selection

_HEADS, _KV_HEADS, _HEAD_DIM, _BLOCK = 32, 8, 128, 16
_SPARSE_BLOCK = 128


def cases() -> Iterator[Case]:
    """Batches as a server has them, and the longest prompts."""
    for batch, context in ((64, 4096), (16, 8192), (1, 32_768)):
        yield Case(operator="decode attention", name=f"{batch} x {context}", make=partial(_decode, batch, context))
    for length in (2048, 8192):
        yield Case(operator="prefill attention", name=f"{length} tokens", make=partial(_prefill, length))
    yield Case(operator="sparse prefill attention", name="65536 tokens, a quarter of the blocks", make=partial(_sparse, 65_536))


def _paged(
    sequences: int, context: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A cache of one layer whose blocks lie in no order, the tables, and keys and values as [2, sequences, kv, context, d]."""
    entries = -(-context // _BLOCK)
    dense = torch.randn(2, sequences, _KV_HEADS, entries * _BLOCK, _HEAD_DIM, device=device, dtype=dtype)
    table = torch.randperm(sequences * entries, device=device).view(sequences, entries)
    cache = torch.empty(sequences * entries, 1, 2, _BLOCK, _KV_HEADS, _HEAD_DIM, device=device, dtype=dtype)
    blocks = dense.view(2, sequences, _KV_HEADS, entries, _BLOCK, _HEAD_DIM).permute(1, 3, 0, 4, 2, 5)
    cache[table.flatten(), 0] = blocks.flatten(0, 1)
    return cache, table, dense[..., :context, :]


def _decode(batch: int, context: int, device: torch.device, dtype: torch.dtype, small: bool) -> Work:
    batch, context = (2, 100) if small else (batch, context)
    cache, table, (k, v) = _paged(batch, context, device, dtype)
    q = torch.randn(batch, _HEADS, _HEAD_DIM, device=device, dtype=dtype)
    positions = torch.full((batch,), context - 1, device=device)
    scale = _HEAD_DIM**-0.5

    def exact() -> torch.Tensor:
        rows = [
            attend(
                q[i : i + 1].float(),
                k[i].transpose(0, 1).float(),
                v[i].transpose(0, 1).float(),
                positions[i : i + 1],
                first=0,
                window=0,
                scale=scale,
                softcap=0.0,
            )
            for i in range(batch)
        ]
        return torch.cat(rows).view(batch, _HEADS, _HEAD_DIM)

    return Work(
        ours=lambda: decode_attention(q, cache, None, 0, table, positions, scale=scale, longest=context),
        peer=lambda: F.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)[:, :, 0],
        exact=exact,
        limit=5e-3,
        moved=2 * batch * context * _KV_HEADS * _HEAD_DIM * dtype.itemsize,
        products=4 * batch * context * _HEADS * _HEAD_DIM,
    )


def _prefill(length: int, device: torch.device, dtype: torch.dtype, small: bool) -> Work:
    length = 70 if small else length
    cache, table, (k, v) = _paged(1, length, device, dtype)
    q = torch.randn(length, _HEADS, _HEAD_DIM, device=device, dtype=dtype)
    starts, firsts = (
        torch.zeros(1, dtype=torch.int64, device=device),
        torch.tensor([0, length], dtype=torch.int32, device=device),
    )
    scale = _HEAD_DIM**-0.5
    peer = q.transpose(0, 1)[None]
    return Work(
        ours=lambda: prefill_attention(q, cache, None, 0, table, starts, firsts, scale=scale, longest=length),
        peer=lambda: F.scaled_dot_product_attention(peer, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1),
        exact=lambda: F.scaled_dot_product_attention(peer.float(), k.float(), v.float(), is_causal=True, enable_gqa=True)[
            0
        ].transpose(0, 1),
        limit=5e-3,
        moved=2 * length * (_HEADS + _KV_HEADS) * _HEAD_DIM * dtype.itemsize,
        products=2 * length * length * _HEADS * _HEAD_DIM,
    )


def _firsts(length: int, device: torch.device) -> torch.Tensor:
    return torch.tensor([0, length], dtype=torch.int32, device=device)


def _sparse(length: int, device: torch.device, dtype: torch.dtype, small: bool) -> Work:
    """A quarter of the blocks that a query sees; ours without a choice takes the place of torch. The last block is checked."""
    length = 4 * _SPARSE_BLOCK if small else length
    cache, table, (k, v) = _paged(1, length, device, dtype)
    q = torch.randn(length, _HEADS, _HEAD_DIM, device=device, dtype=dtype)
    starts, firsts = torch.zeros(1, dtype=torch.int64, device=device), _firsts(length, device)
    chosen = _a_quarter(length // _SPARSE_BLOCK, device)
    visited = int((chosen.blocks >= 0).sum())
    run = partial(prefill_attention, q, cache, None, 0, table, starts, firsts, scale=_HEAD_DIM**-0.5, longest=length)

    def exact() -> torch.Tensor:
        blocks = chosen.blocks[0, -1, 0]
        keys = (blocks[blocks >= 0, None] * _SPARSE_BLOCK + torch.arange(_SPARSE_BLOCK, device=device)).flatten()
        sees = keys <= torch.arange(length - _SPARSE_BLOCK, length, device=device)[:, None]
        own, some_k, some_v = q[-_SPARSE_BLOCK:].transpose(0, 1)[None], k[..., keys, :], v[..., keys, :]
        found = F.scaled_dot_product_attention(own.float(), some_k.float(), some_v.float(), attn_mask=sees, enable_gqa=True)
        return found[0].transpose(0, 1)

    return Work(
        ours=lambda: run(chosen=chosen),
        peer=run,
        exact=exact,
        last=_SPARSE_BLOCK,
        limit=5e-3,
        moved=2 * length * (_HEADS + _KV_HEADS) * _HEAD_DIM * dtype.itemsize,
        products=4 * visited * _SPARSE_BLOCK**2 * _HEADS // _KV_HEADS * _HEAD_DIM,
    )


def _a_quarter(blocks: int, device: torch.device) -> Selection:
    """Of what each block of queries sees: the first block, its own, and others by chance, the same for all heads."""
    most = max(2, blocks // 4)
    rows = torch.full((1, blocks, _KV_HEADS, most), -1, dtype=torch.int32, device=device)
    for i in range(blocks):
        count = max(1, min(most, (i + 1) // 4))
        some = torch.randperm(i, device=device)[: max(0, count - 1)] if i else torch.empty(0, dtype=torch.int64, device=device)
        kept = torch.cat([some, torch.tensor([i], device=device)]).sort().values.int()
        rows[0, i, :, : len(kept)] = kept
    return Selection(rows, _SPARSE_BLOCK, _SPARSE_BLOCK)
