"""Every head size and group, every type of cache, and everything that scores can be subject to."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.decode_attention import decode_attention

_BF16, _F16, _F32, _INT8, _FP8 = torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn
_SHAPES = (
    # queries, cache, heads, KV heads, head_dim, block, keys, everything on
    (_BF16, _BF16, 32, 8, 128, 16, 100_000, False),
    (_BF16, _BF16, 8, 8, 256, 64, 100, True),
    (_F16, _F16, 64, 8, 96, 128, 100_000, True),
    (_BF16, _INT8, 8, 1, 80, 16, 100_000, False),
    (_F16, _INT8, 16, 2, 256, 64, 100_000, True),
    (_F16, _INT8, 32, 8, 128, 128, 100, False),
    (_F16, _FP8, 64, 8, 64, 128, 100_000, True),
    (_BF16, _FP8, 32, 8, 128, 16, 100_000, False),
    (_BF16, _BF16, 14, 2, 64, 16, 100_000, False),
    (_F32, _F32, 4, 2, 64, 16, 100, True),
)


def cases() -> Iterator[Case]:
    """See `Case`."""
    for dtype, stored, heads, kv_heads, head_dim, block, longest, everything in _SHAPES:
        q = torch.empty(4, heads + 2 * kv_heads, head_dim, dtype=dtype, device="meta")[:, :heads]
        cache = torch.empty(1000, 2, 2, block, kv_heads, head_dim, dtype=stored, device="meta")
        scales = None if dtype == stored else torch.empty(cache.shape[:5], device="meta")
        table = torch.empty(4, -(-longest // block), dtype=torch.int64, device="meta")
        run = partial(
            decode_attention,
            q,
            cache,
            scales,
            1,
            table,
            torch.empty(4, dtype=torch.int64, device="meta"),
            scale=head_dim**-0.5,
            longest=longest,
            window=4096 if everything else 0,
            softcap=30.0 if everything else 0.0,
            sinks=torch.empty(heads, device="meta") if everything else None,
            chosen=torch.empty(4, kv_heads, 100, dtype=torch.int32, device="meta") if everything else None,
        )
        kind = "window, softcap, sinks and chosen" if everything else "plain"
        yield Case(
            f"{kind}, {dtype} on {stored}, {heads}/{kv_heads} heads of {head_dim}, blocks of {block}, {longest} keys",
            run,
            products=() if dtype == _F32 else ("attend_split_kernel",),
            least=89 if stored == _FP8 else 80,
        )
