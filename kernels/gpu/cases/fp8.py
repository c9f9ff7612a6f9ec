"""Rounding rows to 8-bit floating point."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.fp8 import LEAST_CAPABILITY, Fp8Weight, fp8_product


def cases() -> Iterator[Case]:
    """See `Case`."""
    for columns in (4096, 1504):
        x = torch.empty(8, columns, dtype=torch.bfloat16, device="meta")
        codes = torch.empty(4096, columns, dtype=torch.float8_e4m3fn, device="meta")
        weight = Fp8Weight(codes, torch.empty(4096, device="meta"))
        yield Case(f"8 rows of {columns}", partial(fp8_product, x, weight), least=LEAST_CAPABILITY)
