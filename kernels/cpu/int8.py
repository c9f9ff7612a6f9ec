"""Rows of activations to int8 and products of int8 matrices back: what surrounds an int8 GEMM."""

from typing import Any

import numpy as np

from kernels.cpu.codes import to_codes
from kernels.cpu.launch import inlined, kernel, thread
from kernels.cpu.numbers import bytes_at, floats_at, halves_at, ints_at, store


@inlined
def _quantise(a: Any, source: Any) -> None:
    """Arguments: threads, source, codes, scales, rows, columns. Symmetric, one scale per row, the largest becomes 127."""
    rows, columns, scales = a[4], a[5], floats_at(a[3])
    for row in range(rows * thread() // a[0], rows * (thread() + 1) // a[0]):
        scales[row] = to_codes(source, row * columns, bytes_at(a[2]), row * columns, columns)


@inlined
def _dequantise(a: Any, out: Any) -> None:
    """Arguments: threads, sums (int32), row scales, column scales, bias or 0, out, rows, columns."""
    rows, columns = a[6], a[7]
    sums, row_scales, column_scales, bias = ints_at(a[1]), floats_at(a[2]), floats_at(a[3]), floats_at(a[4])
    for row in range(rows * thread() // a[0], rows * (thread() + 1) // a[0]):
        first, scale = row * columns, row_scales[row]
        if a[4]:
            for c in range(columns):
                store(out, first + c, np.float32(sums[first + c]) * (scale * column_scales[c]) + bias[c])
        else:
            for c in range(columns):
                store(out, first + c, np.float32(sums[first + c]) * (scale * column_scales[c]))


@kernel
def quantise_bf16(a: Any) -> None:
    """From bfloat16."""
    _quantise(a, halves_at(a[1]))


@kernel
def quantise_f32(a: Any) -> None:
    """From float32."""
    _quantise(a, floats_at(a[1]))


@kernel
def dequantise_bf16(a: Any) -> None:
    """To bfloat16."""
    _dequantise(a, halves_at(a[5]))


@kernel
def dequantise_f32(a: Any) -> None:
    """To float32."""
    _dequantise(a, floats_at(a[5]))
