"""More that kernels do with vectors: int8, fewer than 16 numbers, and arithmetic that is rarer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.launch import device
from kernels.cpu.numbers import load, store
from kernels.cpu.vectors import FLOATS, INT, INTS, LANES, SHORTS, call, every, operation, spread, vector, widened

_BYTES = ir.VectorType(ir.IntType(8), LANES)


def read(builder: ir.IRBuilder, kind: Any, place: Any) -> Any:
    """Emit a load of 16 numbers as float32. `kind` is what numba calls the numbers at `place`: float32, uint16 or int8."""
    if kind == types.float32:
        return builder.load(builder.bitcast(place, FLOATS.as_pointer()), align=4)
    if kind == types.int8:
        codes = builder.load(builder.bitcast(place, _BYTES.as_pointer()), align=1)
        return builder.sitofp(builder.sext(codes, INTS), FLOATS)
    halves = builder.load(builder.bitcast(place, SHORTS.as_pointer()), align=2)
    return builder.bitcast(widened(builder, halves), FLOATS)


@intrinsic
def load_lanes(_context: Any, pointer: Any, index: Any) -> Any:
    """Read 16 numbers as float32; `pointer` is to float32, to uint16 that hold bfloat16, or to int8."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        return read(builder, pointer.dtype, builder.gep(arguments[0], [arguments[1]]))

    return vector(pointer, types.int64), generate


@operation(types.void, types.CPointer(types.int8), types.int64, vector)
def store_codes(builder: ir.IRBuilder, pointer: Any, index: Any, value: Any) -> Any:
    """Write 16 float32 from -127 to 127 as int8, rounded to nearest, ties to even."""
    codes = builder.trunc(builder.fptosi(call(builder, "llvm.nearbyint.v16f32", FLOATS, value), INTS), _BYTES)
    builder.store(codes, builder.bitcast(builder.gep(pointer, [index]), _BYTES.as_pointer()), align=1)
    return ir.Constant(ir.IntType(8).as_pointer(), None)


@operation(types.float32, vector, types.int64)
def lane(builder: ir.IRBuilder, value: Any, index: Any) -> Any:
    """One number of a vector."""
    return builder.extract_element(value, index)


@operation(vector, vector, types.int64, types.float32)
def with_lane(builder: ir.IRBuilder, value: Any, index: Any, number: Any) -> Any:
    """A vector with one number replaced."""
    return builder.insert_element(value, number, index)


@device
def load_some(pointer: Any, index: Any, count: Any) -> Any:
    """Read fewer than 16 numbers, slowly. The other lanes are 0."""
    value = every(np.float32(0))
    for i in range(count):
        value = with_lane(value, i, load(pointer, index + i))
    return value


@device
def store_some(pointer: Any, index: Any, count: Any, value: Any) -> None:
    """Write the first lanes, fewer than 16, slowly."""
    for i in range(count):
        store(pointer, index + i, lane(value, i))


@operation(vector, vector, vector)
def quotient(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x / y in every lane."""
    return builder.fdiv(x, y)


@operation(vector, vector, vector)
def minimum(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The smaller of each pair of lanes; the second where one is NaN."""
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


@operation(vector, vector)
def magnitude(builder: ir.IRBuilder, x: Any) -> Any:
    """Every lane without its sign."""
    return builder.bitcast(builder.and_(builder.bitcast(x, INTS), spread(builder, INT(0x7FFFFFFF))), FLOATS)
