"""Rounding numbers to int8, symmetrically: the largest becomes 127, or -127."""

from typing import Any

import numpy as np

from kernels.cpu.lanes import magnitude, store_codes
from kernels.cpu.launch import device
from kernels.cpu.numbers import load
from kernels.cpu.vectors import LANES, every, highest, load_vector, maximum


@device
def to_codes(source: Any, first: Any, codes: Any, place: Any, count: Any) -> Any:
    """Round `count` numbers, to nearest, ties to even, and return the factor that makes numbers of the codes again."""
    whole, tops = count // LANES * LANES, every(np.float32(0))
    for i in range(0, whole, LANES):
        tops = maximum(magnitude(load_vector(source, first + i)), tops)
    top = highest(tops)
    for i in range(whole, count):
        top = max(top, abs(load(source, first + i)))
    inverse = np.float32(127) / top if top > 0 else np.float32(0)
    for i in range(0, whole, LANES):
        store_codes(codes, place + i, load_vector(source, first + i) * every(inverse))
    for i in range(whole, count):
        codes[place + i] = np.int8(np.rint(load(source, first + i) * inverse))
    return top / np.float32(127)
