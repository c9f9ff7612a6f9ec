"""Products of matrix tiles whose sums stay in registers.

The left matrix has ROWS rows, one after the other. The right matrix is packed in words of 32 bits: a float32, or a pair of
bfloat16 that one dot product takes at once. Word k of a left row meets row k of the packed matrix, which has that word of every
column, next to each other; for pairs and columns b, c, ...: (b[2k], b[2k + 1]), (c[2k], c[2k + 1]), ...

Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), section 4.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.vectors import FLOAT, FLOATS, HAS_LONG_REGISTERS, INT, INTS, LANES, LONG, ZEROS, BrainFloat, call, spread

ROWS = 6
"""Rows of a left tile. With 4 vectors of columns 24 of 32 registers hold sums; with 1 of half the length, 12 of 16."""

_WIDEST = 4 if HAS_LONG_REGISTERS else 1
_PAIRS = ir.VectorType(BrainFloat(), 2 * LANES)


def is_half(pointer: Any) -> bool:
    """Whether a pointer of this numba type leads to bfloat16 (as uint16), rather than to float32."""
    return bool(pointer.dtype == types.uint16)


def row_of(builder: ir.IRBuilder, base: Any, stride: Any, row: Any, offset: int = 0) -> Any:
    """Emit the address of a row, `offset` bytes into it."""
    return builder.add(builder.add(base, builder.mul(stride, row)), LONG(offset))


def load_at(builder: ir.IRBuilder, address: Any, kind: ir.Type, align: int) -> Any:
    """Emit a load from an address that is an int64."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)


def store_at(builder: ir.IRBuilder, value: Any, address: Any, align: int) -> None:
    """Emit a store to an address that is an int64."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=align)


def _multiplied(builder: ir.IRBuilder, half: bool, total: Any, left: Any, right: Any) -> Any:
    if not half:
        return call(builder, "llvm.fmuladd.v16f32", FLOATS, left, right, total)
    pairs = [builder.bitcast(words, _PAIRS) for words in (left, right)]
    return call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, total, *pairs)


def _register_tile(builder: ir.IRBuilder, half: bool, vectors: int, places: Sequence[Any], steps: Any, scales: Any) -> None:
    """Emit the product of ROWS rows and `vectors` vectors of columns."""
    left, left_stride, right, right_stride, out, out_stride = places
    word, words = (INT, INTS) if half else (FLOAT, FLOATS)
    outs = [row_of(builder, out, out_stride, LONG(row), 64 * v) for row in range(ROWS) for v in range(vectors)]

    start = builder.block
    adding, loop, end = (builder.append_basic_block(name) for name in ("adding", "loop", "end"))
    builder.cbranch(builder.icmp_unsigned("==", scales, LONG(0)), loop, adding)

    builder.position_at_end(adding)
    factors = [spread(builder, load_at(builder, row_of(builder, scales, LONG(4), LONG(row)), FLOAT, 4)) for row in range(ROWS)]
    earlier = [builder.fmul(load_at(builder, at, FLOATS, 64), factors[index // vectors]) for index, at in enumerate(outs)]
    builder.branch(loop)

    builder.position_at_end(loop)
    step = builder.phi(LONG)
    totals = [builder.phi(FLOATS) for _ in outs]
    columns = [load_at(builder, row_of(builder, right, right_stride, step, 64 * v), words, 64) for v in range(vectors)]
    sums: list[Any] = []
    for row in range(ROWS):
        at = builder.add(row_of(builder, left, left_stride, LONG(row)), builder.shl(step, LONG(2)))
        number = spread(builder, load_at(builder, at, word, 4))
        sums += [_multiplied(builder, half, totals[row * vectors + v], number, columns[v]) for v in range(vectors)]
    following = builder.add(step, LONG(1))
    builder.cbranch(builder.icmp_signed("<", following, steps), loop, end)
    for phi, first, added, value in zip(
        [step, *totals], [LONG(0), *[ZEROS] * len(outs)], [LONG(0), *earlier], [following, *sums], strict=True
    ):
        phi.add_incoming(first, start)
        phi.add_incoming(added, adding)
        phi.add_incoming(value, loop)

    builder.position_at_end(end)
    for at, value in zip(outs, sums, strict=True):
        store_at(builder, value, at, 64)


def _product(builder: ir.IRBuilder, half: bool, places: Sequence[Any], vectors: Any, steps: Any, scales: Any) -> None:
    """Emit a loop over tiles as wide as the registers allow; the last may be narrower."""
    left, left_stride, right, right_stride, out, out_stride = places
    start = builder.block
    loop, end = builder.append_basic_block("columns"), builder.append_basic_block("end")
    builder.branch(loop)
    builder.position_at_end(loop)
    done = builder.phi(LONG)
    done.add_incoming(LONG(0), start)
    offset = builder.shl(done, LONG(6))
    here = (left, left_stride, builder.add(right, offset), right_stride, builder.add(out, offset), out_stride)
    widths = [builder.append_basic_block("width") for _ in range(_WIDEST)]
    switch = builder.switch(builder.sub(vectors, done), widths[-1])
    switch.add_case(LONG(0), end)
    for width, block in enumerate(widths, 1):
        if width < _WIDEST:
            switch.add_case(LONG(width), block)
        builder.position_at_end(block)
        _register_tile(builder, half, width, here, steps, scales)
        done.add_incoming(builder.add(done, LONG(width)), builder.block)
        builder.branch(loop)
    builder.position_at_end(end)


@intrinsic
def multiply(_context: Any, like: Any, left: Any, right: Any, out: Any, vectors: Any, steps: Any, scales: Any) -> Any:
    """out = left x right, or scales x out + left x right, with a scale per row.

    Args:
        like: a pointer to what the matrices hold. Pairs of bfloat16 need HAS_BF16. `out` is float32 in any case.
        left, right, out: the address of the first row, and bytes from row to row. Right and out are aligned to 64 bytes.
        vectors: columns / 16.
        steps: words in a left row, at least 1.
        scales: the address of ROWS float32, or 0.
    """
    matrix = types.UniTuple(types.int64, 2)

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        places = [builder.extract_value(argument, index) for argument in arguments[1:4] for index in range(2)]
        _product(builder, is_half(like), places, *arguments[4:])
        return context.get_dummy_value()

    return types.void(like, matrix, matrix, matrix, types.int64, types.int64, types.int64), generate
