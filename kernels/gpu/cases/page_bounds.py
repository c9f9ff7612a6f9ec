"""Bounds of every type of cache."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.page_bounds import write_bounds


def cases() -> Iterator[Case]:
    """See `Case`."""
    for stored, block, head_dim in (
        (torch.bfloat16, 128, 256),
        (torch.bfloat16, 16, 80),
        (torch.int8, 48, 128),
        (torch.float8_e4m3fn, 64, 96),
    ):
        cache = torch.empty(1000, 2, 2, block, 8, head_dim, dtype=stored, device="meta")
        scales = None if stored == torch.bfloat16 else torch.empty(cache.shape[:5], device="meta")
        pages = torch.empty(1000, 2, 2, 8, head_dim, dtype=torch.bfloat16, device="meta")
        blocks = torch.empty(100, dtype=torch.int64, device="meta")
        yield Case(
            f"{stored}, blocks of {block}, heads of {head_dim}",
            partial(write_bounds, cache, scales, 1, blocks, pages),
            least=89 if stored == torch.float8_e4m3fn else 80,
        )
