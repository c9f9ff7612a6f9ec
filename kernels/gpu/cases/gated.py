"""Gates of both kinds."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.gated import gated


def cases() -> Iterator[Case]:
    """See `Case`."""
    for dtype in (torch.bfloat16, torch.float32):
        for gelu in (False, True):
            x = torch.empty(8, 2 * 1536, dtype=dtype, device="meta")
            yield Case(f"{dtype} {'gelu' if gelu else 'silu'}", partial(gated, x, gelu=gelu))
