"""Logits in float32 for a few rows: the vocabulary is split over the threads and every weight is read from memory once.

A row's products are added up in the same order whether it is alone or not, so it has the same bits in any batch.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from kernels.cpu.lanes import load_lanes
from kernels.cpu.launch import device, inlined, kernel, thread
from kernels.cpu.numbers import bytes_at, floats_at, halves_at, load
from kernels.cpu.vectors import LANES, every, load_vector, total

GROUP = 32
"""Columns of int8 codes that share a scale."""

_WORDS = 32  # so many stay in the nearest cache while all rows meet them


def _factor(weights: Any, scales: Any, index: Any) -> Any:
    """What int8 codes are multiplied by, in every lane; 1 for other weights."""
    raise NotImplementedError("only inside kernels")


@overload(_factor, strict=False)
def _factor_in_kernels(weights: Any, scales: Any, index: Any) -> Any:
    if weights.dtype == types.int8:
        return lambda weights, scales, index: every(scales[index])
    return lambda weights, scales, index: every(np.float32(1))


@device
def _weights(weights: Any, scales: Any, place: Any) -> Any:
    return load_lanes(weights, place) * _factor(weights, scales, place // GROUP)


@device
def _rest(x: Any, row: Any, weights: Any, start: Any, columns: Any) -> Any:
    """The dot product of the columns that fill no vector."""
    dot = np.float32(0)
    for i in range(columns // LANES * LANES, columns):
        dot += x[row + i] * load(weights, start + i)
    return dot


@device
def _one_row(x: Any, row: Any, weights: Any, scales: Any, start: Any, columns: Any) -> Any:
    dot = every(np.float32(0))
    for i in range(0, columns // LANES * LANES, LANES):
        dot = dot + _weights(weights, scales, start + i) * load_vector(x, row + i)
    return total(dot) + _rest(x, row, weights, start, columns)


@device
def _four_rows(x: Any, rows: Any, weights: Any, scales: Any, start: Any, columns: Any) -> Any:
    a = b = c = d = every(np.float32(0))
    for i in range(0, columns // LANES * LANES, LANES):
        weight = _weights(weights, scales, start + i)
        a = a + weight * load_vector(x, rows[0] + i)
        b = b + weight * load_vector(x, rows[1] + i)
        c = c + weight * load_vector(x, rows[2] + i)
        d = d + weight * load_vector(x, rows[3] + i)
    return (
        total(a) + _rest(x, rows[0], weights, start, columns),
        total(b) + _rest(x, rows[1], weights, start, columns),
        total(c) + _rest(x, rows[2], weights, start, columns),
        total(d) + _rest(x, rows[3], weights, start, columns),
    )


@inlined
def _logits(a: Any, weights: Any) -> None:
    """Arguments: threads, x (float32), weights, scales, logits, rows, vocabulary, columns."""
    rows, vocab, columns = a[5], a[6], a[7]
    x, scales, logits = floats_at(a[1]), floats_at(a[3]), floats_at(a[4])
    first, last = vocab * thread() // a[0], vocab * (thread() + 1) // a[0]
    if rows == 1:
        for word in range(first, last):
            logits[word] = _one_row(x, 0, weights, scales, word * columns, columns)
        return
    for block in range(first, last, _WORDS):
        for row in range(0, rows, 4):
            # Fewer than four: the last row is taken several times.
            at = (row, min(row + 1, rows - 1), min(row + 2, rows - 1), min(row + 3, rows - 1))
            starts = (at[0] * columns, at[1] * columns, at[2] * columns, at[3] * columns)
            for word in range(block, min(block + _WORDS, last)):
                dots = _four_rows(x, starts, weights, scales, word * columns, columns)
                for i in range(4):
                    logits[at[i] * vocab + word] = dots[i]


@kernel
def head_bf16(a: Any) -> None:
    """Weights are bfloat16."""
    _logits(a, halves_at(a[2]))


@kernel
def head_f32(a: Any) -> None:
    """Weights are float32."""
    _logits(a, floats_at(a[2]))


@kernel
def head_int8(a: Any) -> None:
    """Weights are int8 codes."""
    _logits(a, bytes_at(a[2]))
