"""Numbers inside CPU kernels: pointers from addresses, and bfloat16."""

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload


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
nibbles_at = _pointer_to(types.uint8, ir.IntType(8))
ints_at = _pointer_to(types.int32, ir.IntType(32))
longs_at = _pointer_to(types.int64, ir.IntType(64))


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
