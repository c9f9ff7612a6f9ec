"""Every head size, every type of cache, and everything that scores can be subject to."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.prefill_attention import prefill_attention
from kernels.sparsity import Selection

_BF16, _F16, _F32, _INT8, _FP8 = torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn
_SHAPES = (
    # queries, cache, heads, KV heads, head_dim, block, window and softcap, sinks and chosen blocks
    (_BF16, _BF16, 32, 8, 128, 16, False, False),
    (_F16, _F16, 14, 2, 64, 128, False, True),
    (_BF16, _BF16, 8, 8, 256, 64, True, False),
    (_F16, _F16, 16, 1, 80, 16, True, True),
    (_BF16, _INT8, 32, 8, 128, 16, False, True),
    (_F16, _INT8, 16, 2, 256, 32, True, False),
    (_F16, _FP8, 64, 8, 96, 16, True, False),
    (_BF16, _FP8, 32, 8, 128, 64, False, True),
    (_F32, _F32, 4, 2, 64, 16, True, False),
)


def cases() -> Iterator[Case]:
    """See `Case`."""
    for dtype, stored, heads, kv_heads, head_dim, block, shaped, sparse in _SHAPES:
        q = torch.empty(1000, heads + 2 * kv_heads, head_dim, dtype=dtype, device="meta")[:, :heads]
        cache = torch.empty(1000, 2, 2, block, kv_heads, head_dim, dtype=stored, device="meta")
        blocks = torch.empty(2, 6, kv_heads, 40, dtype=torch.int32, device="meta")
        run = partial(
            prefill_attention,
            q,
            cache,
            None if dtype == stored else torch.empty(cache.shape[:5], device="meta"),
            1,
            torch.empty(2, 4096 // block, dtype=torch.int64, device="meta"),
            torch.empty(2, dtype=torch.int64, device="meta"),
            torch.empty(3, dtype=torch.int32, device="meta"),
            scale=head_dim**-0.5,
            longest=700,
            window=1024 if shaped else 0,
            softcap=30.0 if shaped else 0.0,
            sinks=torch.empty(heads, device="meta") if sparse else None,
            chosen=Selection(blocks, 128, 128) if sparse else None,
        )
        kinds = ["window and softcap"] * shaped + ["sinks and chosen blocks"] * sparse
        yield Case(
            f"{', '.join(kinds) or 'plain'}, {dtype} on {stored}, {heads}/{kv_heads} heads of {head_dim}, blocks of {block}",
            run,
            products=() if dtype == _F32 else ("prefill_attention_kernel",),
            least=89 if stored == _FP8 else 80,
        )
