"""Products with 4-bit weights, from one row to many, beside torch's in 16 bits."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional as F

from kernels.bench.case import Case, Work
from kernels.gpu.quantised_linear import int4_product
from kernels.gpu.weight_layout import pack_int4
from kernels.quantised import int4_weight

_SIZE, _GROUP = 8192, 128


def cases() -> Iterator[Case]:
    """As many rows as answers are written at once, and as prompts have."""
    for rows in (1, 4, 16, 64, 128, 512, 2048):
        yield Case(operator="int4 product", name=f"{rows} x {_SIZE} x {_SIZE}", make=partial(_int4, rows))


def _int4(rows: int, device: torch.device, dtype: torch.dtype, small: bool) -> Work:
    size, rows = (256, min(rows, 20)) if small else (_SIZE, rows)
    codes = torch.randint(0, 16, (size, size), dtype=torch.uint8, device=device)
    scales = torch.rand(size, size // _GROUP, device=device) / 100 + 1e-3
    minima = -8 * scales
    packed = pack_int4(codes, scales, minima, _GROUP)
    exact = int4_weight(codes, scales.half().float(), minima.half().float(), _GROUP)
    dense, x = exact.to(dtype), torch.randn(rows, size, device=device, dtype=dtype)
    return Work(
        ours=lambda: int4_product(x, packed),
        peer=lambda: F.linear(x, dense),
        exact=lambda: F.linear(x.float(), exact.float()),
        limit=1e-2,
        moved=packed.nbytes + 2 * rows * size * dtype.itemsize,
        products=2 * rows * size * size,
    )
