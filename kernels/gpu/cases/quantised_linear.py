"""Weights of 4 and 8 bits, for one row, few rows and many."""

from collections.abc import Iterator
from functools import partial

import torch

from kernels.gpu.case import Case
from kernels.gpu.quantised_linear import int4_product, int8_product
from kernels.gpu.weight_layout import CHUNK, Packed

_DOT = ("quantised_dot_kernel",)


def _empty(bits: int, outputs: int, columns: int, group: int) -> Packed:
    chunks, dtype = -(-columns // CHUNK), torch.int32 if bits == 4 else torch.float16
    words = torch.empty(chunks, outputs, 4 * bits, dtype=torch.int32, device="meta")
    size = (chunks, outputs, CHUNK // group) if group else (1, outputs, 1)
    return Packed(words, torch.empty(size, dtype=dtype, device="meta"), columns, group)


def cases() -> Iterator[Case]:
    """See `Case`."""
    half, brain = torch.float16, torch.bfloat16
    for bits, rows, dtype, outputs, columns, group in (
        (4, 1, brain, 4096, 4096, 128),
        (4, 1, half, 1000, 1504, 32),
        (4, 16, brain, 4096, 4096, 32),
        (4, 64, brain, 4096, 4096, 64),
        (4, 64, half, 1000, 1504, 128),
        (4, 500, brain, 1000, 1504, 32),
        (8, 64, brain, 4096, 4096, 32),
        (8, 1, half, 1000, 1504, 0),
    ):
        x = torch.empty(rows, columns, dtype=dtype, device="meta")
        bias = torch.empty(outputs, device="meta") if outputs == 1000 else None
        product = int4_product if bits == 4 else int8_product
        name = f"{bits} bits, {rows} rows of {columns} to {outputs}, {f'groups of {group}' if group else 'no groups'}, {dtype}"
        yield Case(name, partial(product, x, _empty(bits, outputs, columns, group), bias), _DOT)
    # Every entry of the tables, which go by outputs.
    for outputs in (1024, 2048, 4096, 8192, 28_672, 65_536):
        for bits, rows in ((4, 1), (4, 16), (4, 64), (8, 16)):
            x = torch.empty(rows, 4096, dtype=brain, device="meta")
            product = int4_product if bits == 4 else int8_product
            name = f"{bits} bits, {rows} rows of 4096 to {outputs}, groups of 128 or none, {brain}"
            yield Case(name, partial(product, x, _empty(bits, outputs, 4096, 128 if bits == 4 else 0)), _DOT)
