"""Packing rows into the right matrices of tile products (see `kernels.cpu.tiles`), wherever each row is.

`source` and `like` are pointers whose types tell what the rows and the packed matrix hold: both float32, both bfloat16 (packed
as pairs), or bfloat16 and float32 (widened).
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.tiles import is_half, load_at, row_of, store_at
from kernels.cpu.vectors import INT, INTS, LANES, LONG, SHORT, SHORTS, widened

WORDS = 8
"""Words that `pack_columns` takes of each row."""


@intrinsic
def pointer_like(_context: Any, like: Any, address: Any) -> Any:
    """A pointer to the same type at another address."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        return builder.inttoptr(arguments[1], arguments[0].type)

    return like(like, types.int64), generate


def _address(builder: ir.IRBuilder, rows: Any, row: int, offset: Any) -> Any:
    return builder.add(load_at(builder, row_of(builder, rows, LONG(8), LONG(row)), LONG, 8), offset)


@intrinsic
def pack_columns(_context: Any, source: Any, like: Any, rows: Any, first: Any, out: Any, stride: Any) -> Any:
    """Make columns of 16 rows: word k of every row, next to each other, becomes row k of the packed matrix, for 8 k.

    Args:
        rows: the address of 16 addresses.
        first: the first word of each row.
        out: an address, aligned to 64 bytes.
        stride: bytes from row to row of the packed matrix.
    """
    widen = is_half(source) and not is_half(like)

    def read(builder: ir.IRBuilder, address: Any) -> Any:
        if widen:
            return widened(builder, load_at(builder, address, ir.VectorType(SHORT, WORDS), 2))
        return load_at(builder, address, ir.VectorType(INT, WORDS), 2)

    def chosen(builder: ir.IRBuilder, x: Any, y: Any, lanes: list[int]) -> Any:
        return builder.shuffle_vector(x, y, ir.Constant(INTS, lanes))

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        _, _, rows, first, out, stride = arguments
        offset = builder.shl(first, LONG(1 if widen else 2))
        loaded = [read(builder, _address(builder, rows, row, offset)) for row in range(LANES)]
        # Two squares of 8 x 8, in the lower and upper lanes, transposed by one bit of the indices after the other.
        squares = [chosen(builder, loaded[row], loaded[row + WORDS], list(range(LANES))) for row in range(WORDS)]
        for bit in (4, 2, 1):
            even = [lane + LANES - bit if lane & bit else lane for lane in range(LANES)]
            odd = [lane + LANES if lane & bit else lane + bit for lane in range(LANES)]
            for row in (row for row in range(WORDS) if not row & bit):
                x, y = squares[row], squares[row + bit]
                squares[row], squares[row + bit] = chosen(builder, x, y, even), chosen(builder, x, y, odd)
        for row, square in enumerate(squares):
            store_at(builder, square, row_of(builder, out, stride, LONG(row)), 64)
        return context.get_dummy_value()

    return types.void(source, like, *[types.int64] * 4), generate


@intrinsic
def pack_two_rows(_context: Any, source: Any, like: Any, rows: Any, first: Any, out: Any, stride: Any) -> Any:
    """Pack 16 numbers of each of two rows: into one row of pairs, or into two rows.

    Args:
        rows: the address of two addresses.
        first: the first number of each row.
        out: an address, aligned to 64 bytes.
        stride: bytes from row to row of the packed matrix.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        _, _, rows, first, out, stride = arguments
        half = is_half(source)
        offset = builder.shl(first, LONG(1 if half else 2))
        loaded = [load_at(builder, _address(builder, rows, row, offset), SHORTS if half else INTS, 2) for row in range(2)]
        words = [widened(builder, row) if half else row for row in loaded]
        if is_half(like):
            store_at(builder, builder.or_(builder.zext(loaded[0], INTS), words[1]), out, 64)
        else:
            store_at(builder, words[0], out, 64)
            store_at(builder, words[1], builder.add(out, stride), 64)
        return context.get_dummy_value()

    return types.void(source, like, *[types.int64] * 4), generate
