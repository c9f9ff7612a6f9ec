"""RMSNorm with the residual addition before it, in one pass over each row."""

from typing import Any

import numpy as np

from kernels.cpu.launch import inlined, kernel, thread
from kernels.cpu.numbers import double_of_bits, floats_at, halves_at, load, store


@inlined
def _add_norm(a: Any, delta: Any, out: Any) -> None:
    """Arguments: threads, residual, delta or 0, post weight or 0, weight, out, rows, columns, epsilon."""
    rows, columns = a[6], a[7]
    epsilon = np.float32(double_of_bits(a[8]))
    residual, weight, post = floats_at(a[1]), floats_at(a[4]), floats_at(a[3])
    for row in range(rows * thread() // a[0], rows * (thread() + 1) // a[0]):
        first = row * columns
        if a[2]:
            scale = np.float32(1)
            if a[3]:
                squares = np.float32(0)
                for c in range(columns):
                    value = load(delta, first + c)
                    squares += value * value
                scale = np.float32(1) / np.sqrt(squares / np.float32(columns) + epsilon)
                for c in range(columns):
                    residual[first + c] += load(delta, first + c) * scale * post[c]
            else:
                for c in range(columns):
                    residual[first + c] += load(delta, first + c)
        squares = np.float32(0)
        for c in range(columns):
            squares += residual[first + c] * residual[first + c]
        scale = np.float32(1) / np.sqrt(squares / np.float32(columns) + epsilon)
        for c in range(columns):
            store(out, first + c, residual[first + c] * scale * weight[c])


@kernel
def add_norm_bf16(a: Any) -> None:
    """Delta and output are bfloat16."""
    _add_norm(a, halves_at(a[2]), halves_at(a[5]))


@kernel
def add_norm_f32(a: Any) -> None:
    """Delta and output are float32."""
    _add_norm(a, floats_at(a[2]), floats_at(a[5]))


@kernel
def add_norm_bf16_f32(a: Any) -> None:
    """Delta is bfloat16, the output float32."""
    _add_norm(a, halves_at(a[2]), floats_at(a[5]))
