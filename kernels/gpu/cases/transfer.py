"""Copies by words of two sizes, and codes of both types."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.transfer import dequantise_blocks, gather_blocks, quantise_blocks, scatter_blocks

BF16, F16, F32, INT8, FP8 = torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn


def cases() -> Iterator[Case]:
    """See `Case`."""
    empty = partial(torch.empty, device="meta")
    ids = empty(3, dtype=torch.int64)
    cache, odd = empty(100, 4, 2, 16, 3, 64, dtype=BF16), empty(100, 1, 2, 1, 1, 5, dtype=BF16)
    yield Case("gather", partial(gather_blocks, cache, ids))
    yield Case("gather short words", partial(gather_blocks, odd, ids))
    yield Case("scatter", partial(scatter_blocks, cache[:3], cache, ids))
    for dtype, stored, head_dim in ((BF16, INT8, 128), (F16, INT8, 80), (BF16, FP8, 256)):
        blocks = empty(3, 4, 2, 16, 3, head_dim, dtype=dtype)
        least = 89 if stored == FP8 else 80
        yield Case(f"quantise {dtype} to {stored}, {head_dim}", partial(quantise_blocks, blocks, stored), least=least)
        if dtype == BF16:
            codes, scales = empty(blocks.shape, dtype=stored), empty(blocks.shape[:-1])
            yield Case(f"dequantise {stored}, {head_dim}", partial(dequantise_blocks, codes, scales, dtype), least=least)
