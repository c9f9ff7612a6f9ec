"""Norms of every length class, with and without something to add."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.norm import add_norm

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def cases() -> Iterator[Case]:
    """See `Case`."""
    for hidden, dtype, adds, posts, out in (
        (896, BF16, False, False, BF16),
        (1536, F16, True, False, F16),
        (4096, BF16, True, False, BF16),
        (5376, BF16, True, True, BF16),
        (8192, F32, True, False, F32),
        (16384, BF16, True, True, F32),
        (20480, BF16, True, True, BF16),
    ):
        residual = torch.empty(8, hidden, device="meta")
        weight = torch.empty(hidden, device="meta")
        delta = torch.empty(8, hidden, dtype=dtype, device="meta") if adds else None
        run = partial(add_norm, residual, delta, weight, weight if posts else None, epsilon=1e-6, dtype=out)
        yield Case(f"{hidden} {dtype} to {out}{' post' if posts else ''}", run)
