"""Numbers inside CPU kernels: pointers from addresses, bfloat16, and an exponential that LLVM can vectorise."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

Float = np.float32
_LOG2_E = np.float32(1.4426950408889634)


def _reinterpreted(source: Any, target: Any, llvm: Any) -> Any:
    @intrinsic
    def reinterpret(context: Any, value: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], llvm)

        return target(source), generate

    return reinterpret


def _pointer_to(target: Any, llvm: Any) -> Any:
    @intrinsic
    def pointer(context: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], llvm.as_pointer())

        return types.CPointer(target)(types.int64), generate

    return pointer


float_of_bits = _reinterpreted(types.uint32, types.float32, ir.FloatType())
bits_of_float = _reinterpreted(types.float32, types.uint32, ir.IntType(32))
double_of_bits = _reinterpreted(types.int64, types.float64, ir.DoubleType())
floats_at = _pointer_to(types.float32, ir.FloatType())
halves_at = _pointer_to(types.uint16, ir.IntType(16))
bytes_at = _pointer_to(types.int8, ir.IntType(8))
ints_at = _pointer_to(types.int32, ir.IntType(32))
longs_at = _pointer_to(types.int64, ir.IntType(64))


@intrinsic
def nearest(context: Any, value: Any) -> Any:
    """Round float32 to the nearest integer, ties to even."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.nearbyint", [ir.FloatType()]), arguments)

    return types.float32(types.float32), generate


@numba.njit
def of_bf16(bits: Any) -> Any:
    """Widen bfloat16 bits to float32, exactly."""
    return float_of_bits(numba.uint32(bits) << numba.uint32(16))


@numba.njit
def to_bf16(value: Any) -> Any:
    """Round float32 to bfloat16 bits, to nearest, ties to even. NaN payloads may become infinite."""
    bits = bits_of_float(value)
    return numba.uint16((bits + numba.uint32(0x7FFF) + ((bits >> numba.uint32(16)) & numba.uint32(1))) >> numba.uint32(16))


def load(pointer: Any, index: Any) -> Any:
    """Read a number as float32: `pointer` is to float32, to uint16 that hold bfloat16, or to int8."""
    raise NotImplementedError("only inside kernels")


@overload(load, strict=False)
def _load(pointer: Any, index: Any) -> Any:
    if pointer.dtype == types.uint16:
        return lambda pointer, index: of_bf16(pointer[index])
    if pointer.dtype == types.int8:
        return lambda pointer, index: numba.float32(pointer[index])
    return lambda pointer, index: pointer[index]


def store(pointer: Any, index: Any, value: Any) -> Any:
    """Write a float32 as what `pointer` holds: float32, or bfloat16 in uint16."""
    raise NotImplementedError("only inside kernels")


@overload(store, strict=False)
def _store(pointer: Any, index: Any, value: Any) -> Any:
    if pointer.dtype == types.uint16:

        def rounded(pointer: Any, index: Any, value: Any) -> None:
            pointer[index] = to_bf16(value)

        return rounded

    def exact(pointer: Any, index: Any, value: Any) -> None:
        pointer[index] = value

    return exact


@numba.njit
def exp(x: Any) -> Any:
    """e to the x in float32: 0 below -87, and what it is at 88 above that. Relative error below 5e-6 at the ends, 3e-7 near 0.

    2^n by the exponent bits, the rest by the Taylor polynomial of degree 6 on [-ln 2 / 2, ln 2 / 2].
    """
    y = min(max(x, np.float32(-87.3)), np.float32(88)) * _LOG2_E
    n = nearest(y)
    f = (y - n) * np.float32(0.6931471805599453)
    p = np.float32(1.0 / 720)
    p = p * f + np.float32(1.0 / 120)
    p = p * f + np.float32(1.0 / 24)
    p = p * f + np.float32(1.0 / 6)
    p = p * f + np.float32(0.5)
    p = p * f + np.float32(1.0)
    p = p * f + np.float32(1.0)
    scale = float_of_bits((numba.uint32(numba.int32(n)) + numba.uint32(127)) << numba.uint32(23))
    result = p * scale
    return result if x > np.float32(-87.3) else np.float32(0)
