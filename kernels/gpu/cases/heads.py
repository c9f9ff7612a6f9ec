"""Heads of every size, into caches of every type."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.heads import prepare_heads

BF16, F16, F32, INT8, FP8 = torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn


def cases() -> Iterator[Case]:
    """See `Case`."""
    for dtype, stored, heads, kv_heads, head_dim, block, norms in (
        (BF16, BF16, 9, 3, 64, 16, False),
        (BF16, INT8, 32, 8, 80, 16, False),
        (F16, F16, 32, 32, 96, 64, False),
        (BF16, INT8, 32, 8, 128, 16, True),
        (BF16, FP8, 40, 8, 128, 64, True),
        (F32, F32, 14, 2, 64, 16, False),
        (BF16, BF16, 8, 4, 256, 128, True),
        (F16, FP8, 8, 4, 256, 16, False),
    ):
        empty = partial(torch.empty, device="meta")
        shape = (100, 4, 2, block, kv_heads, head_dim)
        quantised = stored in (INT8, FP8)
        norm = empty(head_dim) if norms else None
        run = partial(
            prepare_heads,
            empty(8, (heads + 2 * kv_heads) * head_dim, dtype=dtype),
            empty(8, dtype=torch.int64),
            empty(4096, head_dim),
            empty(8, dtype=torch.int64),
            empty(shape, dtype=stored),
            empty(shape[:-1]) if quantised else None,
            1,
            epsilon=1e-6,
            q_norm=norm,
            k_norm=norm,
        )
        yield Case(f"{dtype} into {stored}, {heads}/{kv_heads} of {head_dim}", run, least=89 if stored == FP8 else 80)
