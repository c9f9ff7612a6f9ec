"""Matrix products with weights of 4 or 8 bits in groups of columns, fast from one row to many. For CPUs that multiply bfloat16.

Each output is added up in the same order for any number of rows and threads: a row has the same bits alone and in any batch.
"""

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from kernels.cpu.buffers import Buffers
from kernels.cpu.lanes import load_some, store_some
from kernels.cpu.launch import Launch, device, inlined, kernel, thread
from kernels.cpu.numbers import bytes_at, floats_at, halves_at, load, nibbles_at
from kernels.cpu.strips import MOST_ROWS, OUTPUTS, code_bytes, group_bytes, multiply_strip
from kernels.cpu.vectors import HAS_BF16, LANES, load_vector, store_vector

AVAILABLE = HAS_BF16
"""Whether this CPU can run these kernels."""

_ROWS_OF_SUMS = 64  # of so many rows at once the sums are at hand; the weights are read again for the next ones
_LINE = 64

_X, _WEIGHTS, _BIAS, _OUT, _ROWS, _COLUMNS, _OUTPUTS, _GROUP, _STRIP_BYTES, _SCRATCH, _SCRATCH_BYTES = range(1, 12)


@device
def _sum_groups(a: Any, x: Any, sums: Any, first: Any, rows: Any) -> None:
    """Add up the columns of each group, for rows from `first` on."""
    columns, group = a[_COLUMNS], a[_GROUP]
    for row in range(rows):
        for g in range(columns // group):
            total = np.float32(0)
            for c in range(g * group, (g + 1) * group):
                total += load(x, (first + row) * columns + c)
            sums[row * (columns // group) + g] = total


@device
def _give(a: Any, tile: Any, first: Any, rows: Any, output: Any) -> None:
    """Write a tile, with the bias."""
    out, bias = halves_at(a[_OUT]), floats_at(a[_BIAS])
    count = min(OUTPUTS, a[_OUTPUTS] - output)
    for row in range(rows):
        at = (first + row) * a[_OUTPUTS] + output
        for i in range(0, count, LANES):
            value = load_vector(tile, row * OUTPUTS + i)
            if a[_BIAS]:
                value = value + load_some(bias, output + i, min(LANES, count - i))
            if i + LANES <= count:
                store_vector(out, at + i, value)
            else:
                store_some(out, at + i, count - i, value)


@inlined
def _multiply(a: Any, weights: Any, has_minima: Any) -> None:
    """Each thread has strips of its own."""
    groups = a[_COLUMNS] // a[_GROUP]
    tile = a[_SCRATCH] + thread() * a[_SCRATCH_BYTES]
    sums = tile + 4 * MOST_ROWS * OUTPUTS
    strips = (a[_OUTPUTS] + OUTPUTS - 1) // OUTPUTS
    for block in range(0, a[_ROWS], _ROWS_OF_SUMS):
        end = min(block + _ROWS_OF_SUMS, a[_ROWS])
        if has_minima:
            _sum_groups(a, halves_at(a[_X]), floats_at(sums), block, end - block)
        for strip in range(strips * thread() // a[0], strips * (thread() + 1) // a[0]):
            for row in range(block, end, MOST_ROWS):
                rows = min(MOST_ROWS, end - row)
                multiply_strip(
                    weights,
                    strip * a[_STRIP_BYTES],
                    (a[_X] + 2 * row * a[_COLUMNS], 2 * a[_COLUMNS]),
                    (sums + 4 * (row - block) * groups, 4 * groups),
                    tile,
                    rows,
                    groups,
                    a[_GROUP] // 2,
                )
                _give(a, floats_at(tile), row, rows, strip * OUTPUTS)


@kernel
def int4_bf16(a: Any) -> None:
    """Weights of 4 bits, rows of bfloat16."""
    _multiply(a, nibbles_at(a[_WEIGHTS]), True)


@kernel
def int8_bf16(a: Any) -> None:
    """Weights of 8 bits, rows of bfloat16."""
    _multiply(a, bytes_at(a[_WEIGHTS]), False)


def pack(codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor | None, group: int) -> torch.Tensor:
    """Lay out weights as the kernels read them.

    Args:
        codes: [out, in], `in` a multiple of `group`: uint8, 0 to 15, with minima, or int8 without.
        scales, minima: [out, in / group]; rounded to float16.
        group: a multiple of 32.

    Returns:
        [strips, bytes] uint8, aligned to 64 bytes; outputs that fill no strip have weights of 0.

    Raises:
        ValueError: a scale or a minimum is too large for float16.
    """
    outputs, columns = codes.shape
    groups, missing = columns // group, (0, 0, 0, -outputs % OUTPUTS)
    factors = torch.stack([scales] if minima is None else [scales, minima]).to(torch.float16)
    if not bool(factors.isfinite().all()):
        raise ValueError("a scale of the weights exceeds what float16 holds")
    if minima is None:
        bits, units = 8, codes.view(torch.int16)
    else:
        bits, units = 4, codes[:, 0::2] | codes[:, 1::2] << 4
    units, factors = F.pad(units, missing), F.pad(factors, missing)
    strips = len(units) // OUTPUTS
    packed = _aligned(strips, groups, group_bytes(bits, group))
    by_pair = units.view(strips, OUTPUTS, groups, group // 2).permute(0, 2, 3, 1)
    by_group = factors.view(-1, strips, OUTPUTS, groups).permute(1, 3, 0, 2)
    end = code_bytes(bits, group)
    packed[..., :end] = by_pair.contiguous().view(torch.uint8).flatten(-2)
    packed[..., end:] = by_group.contiguous().view(torch.uint8).flatten(-2)
    return packed.flatten(1)


def _aligned(*shape: int) -> torch.Tensor:
    """Take memory, [*shape] uint8, that begins at a multiple of 64 bytes."""
    size = int(np.prod(shape))
    memory = torch.empty(size + _LINE, dtype=torch.uint8)
    return memory[-memory.data_ptr() % _LINE :][:size].view(shape)


class GroupedProduct:
    """A product bound to its weights: 4 bits where they have minima, else 8. See `kernels.ops.Device.int4` and `.int8`."""

    def __init__(
        self,
        codes: torch.Tensor,
        scales: torch.Tensor,
        minima: torch.Tensor | None,
        group: int,
        bias: torch.Tensor | None,
        buffers: Buffers,
        threads: int,
    ) -> None:
        self._outputs, self._columns = codes.shape
        self._groups, self._buffers, self._threads = self._columns // group, buffers, threads
        weights = pack(codes, scales, minima, group)
        self.nbytes = weights.nbytes
        kernel = int8_bf16 if minima is None else int4_bf16
        sizes = (self._columns, self._outputs, group, weights.shape[1])
        self._launch = Launch(kernel, 0, weights, bias, 0, 0, *sizes, 0, 0, threads=threads)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply bfloat16."""
        if x.shape[1] < self._columns:
            x = F.pad(x, (0, self._columns - x.shape[1]))
        rows = x.shape[0]
        out = torch.empty(rows, self._outputs, dtype=torch.bfloat16)
        size = 4 * (MOST_ROWS * OUTPUTS + min(rows, _ROWS_OF_SUMS) * self._groups)
        size += -size % _LINE
        scratch = self._buffers.take("grouped", self._threads, size + _LINE, torch.uint8)
        arguments = self._launch.arguments
        arguments[_X], arguments[_OUT], arguments[_ROWS] = x.data_ptr(), out.data_ptr(), rows
        arguments[_SCRATCH], arguments[_SCRATCH_BYTES] = scratch.data_ptr() + -scratch.data_ptr() % _LINE, size
        self._launch()
        return out
