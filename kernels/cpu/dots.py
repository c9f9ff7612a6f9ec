"""Dot products of one row with 16 others at once, wherever each of them is: what a query wants from keys.

Sixteen sums stay in registers and are folded together at the end, which takes a third of what folding one by one does. Where
the CPU multiplies bfloat16, rows of bfloat16 are multiplied in pairs as they are; products are exact, sums float32 in any case.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.cpu.lanes import read
from kernels.cpu.vectors import (
    FLOATS,
    HAS_BF16,
    HAS_LONG_REGISTERS,
    INT,
    INTS,
    LANES,
    LONG,
    SHORT,
    ZEROS,
    BrainFloat,
    call,
    vector,
)

_ROWS_AT_ONCE = LANES if HAS_LONG_REGISTERS else 4  # there are registers for so many sums
_PAIRS = 2 * LANES

# Which lanes of two vectors are added to those so much higher, one step after the other.
_EVEN_QUARTERS = [quarter + lane for quarter in range(0, 2 * LANES, 8) for lane in range(4)]
_FOLDS = (
    ([quarter + lane for quarter in range(0, LANES, 4) for lane in (0, LANES, 1, LANES + 1)], 2),
    ([quarter + lane for quarter in range(0, LANES, 4) for lane in (0, 1, LANES, LANES + 1)], 2),
    (_EVEN_QUARTERS, 4),
    (_EVEN_QUARTERS, 4),
)


def _folded(builder: ir.IRBuilder, values: Sequence[Any]) -> Any:
    """Emit the vector of the sums of 16 vectors."""
    for lanes, distance in _FOLDS:
        low, high = (ir.Constant(INTS, [lane + offset for lane in lanes]) for offset in (0, distance))
        values = [
            builder.fadd(builder.shuffle_vector(x, y, low), builder.shuffle_vector(x, y, high))
            for x, y in zip(values[::2], values[1::2], strict=True)
        ]
    return values[0]


def _paired(builder: ir.IRBuilder, place: Any, count: int) -> Any:
    """Emit a load of `count` bfloat16, and zeros behind them to make it 32."""
    kind = ir.VectorType(SHORT, count)
    loaded = builder.load(builder.bitcast(place, kind.as_pointer()), align=2)
    lanes = ir.Constant(ir.VectorType(INT, _PAIRS), [min(lane, count) for lane in range(_PAIRS)])
    filled = builder.shuffle_vector(loaded, ir.Constant(kind, [0] * count), lanes)
    return builder.bitcast(filled, ir.VectorType(BrainFloat(), _PAIRS))


def _add_products(builder: ir.IRBuilder, sums: Sequence[Any], places: Sequence[Any], kinds: Sequence[Any], count: int) -> None:
    """Emit sum += row * other for `count` columns. `sums` are variables; the row's place is the first of `places`."""
    row, *others = places
    paired = kinds[0] == kinds[1] == types.uint16 and HAS_BF16
    left = _paired(builder, row, count) if paired else read(builder, kinds[0], row)
    for variable, other in zip(sums, others, strict=True):
        before = builder.load(variable)
        if paired:
            right = _paired(builder, other, count)
            after = call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, before, left, right)
        else:
            after = call(builder, "llvm.fmuladd.v16f32", FLOATS, left, read(builder, kinds[1], other), before)
        builder.store(after, variable)


@intrinsic
def dots(_context: Any, row: Any, at: Any, other: Any, start: Any, offsets: Any, first: Any, columns: Any) -> Any:
    """Multiply a row with each of 16 others, and add up.

    Args:
        row: a pointer to float32, or to uint16 that hold bfloat16.
        at: where in it the row begins.
        other: the same, or a pointer to int8.
        start: what is added to offsets.
        offsets: a pointer to int64: where in `other` each of the others begins.
        first: which offset is the first of 16.
        columns: a multiple of 16.

    Returns:
        A vector.
    """
    kinds = (row.dtype, other.dtype)
    step = _PAIRS if kinds == (types.uint16, types.uint16) and HAS_BF16 else LANES

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        left, right = (builder.gep(pointer, [index]) for pointer, index in (arguments[:2], arguments[2:4]))
        offsets, first, columns = arguments[4:]
        sums = [cgutils.alloca_once(builder, FLOATS) for _ in range(LANES)]
        for variable in sums:
            builder.store(ZEROS, variable)

        def add(rows: slice, column: Any, count: int) -> None:
            numbers = [builder.load(builder.gep(offsets, [builder.add(first, LONG(i))])) for i in range(LANES)[rows]]
            others = [builder.gep(right, [builder.add(number, column)]) for number in numbers]
            _add_products(builder, sums[rows], [builder.gep(left, [column]), *others], kinds, count)

        steps = builder.udiv(columns, LONG(step))
        done = builder.mul(steps, LONG(step))
        for begin in range(0, LANES, _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            with cgutils.for_range(builder, steps) as loop:
                add(rows, builder.mul(loop.index, LONG(step)), step)
            if step > LANES:
                with builder.if_then(builder.icmp_signed("<", done, columns)):
                    add(rows, done, LANES)
        return _folded(builder, [builder.load(variable) for variable in sums])

    return vector(row, types.int64, other, types.int64, offsets, types.int64, types.int64), generate
