"""Weighted sums of rows, for several sets of weights at once: what the queries of a group want from values.

Each number is read and widened once for all sets. The sums of some columns stay in registers over all rows.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.cpu.lanes import read
from kernels.cpu.vectors import FLOATS, HAS_LONG_REGISTERS, LANES, LONG, ZEROS, call, spread

SETS = 4
"""The most sets of weights at once."""

_MOST_VECTORS = 4 if HAS_LONG_REGISTERS else 1


def _sum_columns(
    builder: ir.IRBuilder, kind: Any, weights: Sequence[Any], rows: Sequence[Any], outs: Sequence[Any], vectors: int
) -> None:
    """Emit the sums of `vectors` vectors of columns. `weights` and `outs` have a pointer per set."""
    first, offsets, count = rows
    sums = [[cgutils.alloca_once(builder, FLOATS) for _ in range(vectors)] for _ in outs]
    for variable in (variable for those in sums for variable in those):
        builder.store(ZEROS, variable)
    with cgutils.for_range(builder, count) as loop:
        row = builder.gep(first, [builder.load(builder.gep(offsets, [loop.index]))])
        factors = [spread(builder, builder.load(builder.gep(pointer, [loop.index]))) for pointer in weights]
        for v in range(vectors):
            numbers = read(builder, kind, builder.gep(row, [LONG(v * LANES)]))
            for factor, variables in zip(factors, sums, strict=True):
                added = call(builder, "llvm.fmuladd.v16f32", FLOATS, factor, numbers, builder.load(variables[v]))
                builder.store(added, variables[v])
    for out, variables in zip(outs, sums, strict=True):
        for v, variable in enumerate(variables):
            place = builder.bitcast(builder.gep(out, [LONG(v * LANES)]), FLOATS.as_pointer())
            builder.store(builder.load(variable), place, align=4)


@intrinsic
def weighted_sums(
    _context: Any,
    weights: Any,
    rows: Any,
    start: Any,
    offsets: Any,
    out: Any,
    strides: Any,
    sets: Any,
    count: Any,
    columns: Any,
) -> Any:
    """out[set] = the sum of weights[set][i] * row i over all rows.

    Args:
        weights: a pointer to float32.
        rows: a pointer to float32, to uint16 that hold bfloat16, or to int8.
        start: what is added to offsets.
        offsets: a pointer to int64: where in `rows` each row begins.
        out: a pointer to float32.
        strides: numbers from set to set of the weights and of `out`.
        sets: from 1 to SETS.
        count: of rows.
        columns: a multiple of 16.
    """
    kind = rows.dtype

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        weights, rows, start, offsets, out, strides, sets, count, columns = arguments
        weights_stride, out_stride = (builder.extract_value(strides, i) for i in range(2))

        def pointers(first: Any, stride: Any, number: int) -> list[Any]:
            return [builder.gep(first, [builder.mul(stride, LONG(i))]) for i in range(number)]

        done: Any = LONG(0)
        for vectors in sorted({_MOST_VECTORS, 1}, reverse=True):
            width = LONG(vectors * LANES)
            steps = builder.udiv(builder.sub(columns, done), width)
            with cgutils.for_range(builder, steps) as loop:
                column = builder.add(done, builder.mul(loop.index, width))
                some_rows = (builder.gep(rows, [builder.add(start, column)]), offsets, count)
                for number in range(1, SETS + 1):
                    with builder.if_then(builder.icmp_signed("==", sets, LONG(number))):
                        some_outs = pointers(builder.gep(out, [column]), out_stride, number)
                        _sum_columns(builder, kind, pointers(weights, weights_stride, number), some_rows, some_outs, vectors)
            done = builder.add(done, builder.mul(steps, width))
        return context.get_dummy_value()

    pair = types.UniTuple(types.int64, 2)
    return types.void(weights, rows, types.int64, offsets, out, pair, *[types.int64] * 3), generate
