"""The gate of the feed-forward: activation(gate) * up, from rows that hold the gate first and then the other half."""

import math
from typing import Any

import numpy as np

from kernels.cpu.lanes import load_some, minimum, quotient, store_some
from kernels.cpu.launch import device, inlined, kernel, thread
from kernels.cpu.numbers import floats_at, halves_at
from kernels.cpu.vectors import LANES, every, exp2, load_vector, store_vector

_ONE, _HIGHEST = np.float32(1), np.float32(126)
_SILU = np.float32(-math.log2(math.e))
_GELU = np.float32(-2 * math.sqrt(2 / math.pi) * math.log2(math.e))
_CUBE = np.float32(0.044715)


@device
def _product(x: Any, up: Any, gelu: Any) -> Any:
    """SiLU, x * sigmoid(x), or GELU in its tanh form, x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), times `up`."""
    exponent = (x + x * x * x * every(_CUBE)) * every(_GELU) if gelu else x * every(_SILU)
    return quotient(x * up, every(_ONE) + exp2(floats_at(0), minimum(exponent, every(_HIGHEST))))


@inlined
def _gated(a: Any, source: Any, out: Any) -> None:
    """Arguments: threads, gate and up, out, rows, columns of the output, 1 for GELU or 0 for SiLU."""
    rows, columns, gelu = a[3], a[4], a[5] != 0
    whole = columns // LANES * LANES
    rest = columns - whole
    for row in range(rows * thread() // a[0], rows * (thread() + 1) // a[0]):
        gate, up, first = 2 * row * columns, (2 * row + 1) * columns, row * columns
        for c in range(0, whole, LANES):
            product = _product(load_vector(source, gate + c), load_vector(source, up + c), gelu)
            store_vector(out, first + c, product)
        if rest:
            product = _product(load_some(source, gate + whole, rest), load_some(source, up + whole, rest), gelu)
            store_some(out, first + whole, rest, product)


@kernel
def gated_bf16(a: Any) -> None:
    """Activations are bfloat16."""
    _gated(a, halves_at(a[1]), halves_at(a[2]))


@kernel
def gated_f32(a: Any) -> None:
    """Activations are float32."""
    _gated(a, floats_at(a[1]), floats_at(a[2]))
