"""Products with 4-bit and 8-bit weights that are never widened in memory: codes become bfloat16 in registers, exactly.

Columns go in groups; within one, the weight of column k is `code * scale`, or with 4 bits `code * scale + minimum`, where scale
and minimum belong to the output. So an output is the sum over groups of `scale * sum(x * code) + minimum * sum(x)`: the inner
sums are dot products of bfloat16 with integers, and scales come in once per group, in float32. A 4-bit code c is put into the
mantissa of 128, which makes it 128 + c in one instruction; what that adds to a sum is known from the sum of x.

A strip of OUTPUTS outputs lies together. For each group: for every two columns the codes of 16 outputs and then of 16 more, the
first column in the low half of a byte or in the byte before; behind them the scales and, with 4 bits, the minima in float16.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.tiles import load_at, row_of, store_at
from kernels.cpu.vectors import FLOAT, FLOATS, INT, INTS, LANES, LONG, ZEROS, BrainFloat, call, spread

VECTORS = 2
OUTPUTS = VECTORS * LANES
"""Outputs of a strip."""

MOST_ROWS = 8
"""Rows that share what was unpacked; sums of so many stay in registers."""

_HALVES = ir.VectorType(ir.HalfType(), LANES)
_PAIRS = ir.VectorType(BrainFloat(), 2 * LANES)
_DOTS = "llvm.x86.avx512bf16.dpbf16ps.512"
_OFFSET = 128.0  # as bfloat16 its bits are 0x4300, and the last place of its mantissa is worth 1


def code_bytes(bits: int, group: int) -> int:
    """What the codes of a group of columns take in a strip."""
    return group * OUTPUTS * bits // 8


def group_bytes(bits: int, group: int) -> int:
    """What a group of columns takes in a strip."""
    return code_bytes(bits, group) + (2 if bits == 4 else 1) * 2 * OUTPUTS


def _unpacked_nibbles(builder: ir.IRBuilder, address: Any) -> Any:
    """Emit 16 pairs of bfloat16, 128 above the codes."""
    codes = builder.zext(load_at(builder, address, ir.VectorType(ir.IntType(8), LANES), LANES), INTS)
    both = builder.or_(codes, builder.shl(codes, spread(builder, INT(12))))
    masked = builder.and_(both, spread(builder, INT(0x000F000F)))
    return builder.bitcast(builder.or_(masked, spread(builder, INT(0x43004300))), _PAIRS)


def _unpacked_bytes(builder: ir.IRBuilder, address: Any) -> Any:
    """Emit 16 pairs of bfloat16."""
    codes = load_at(builder, address, ir.VectorType(ir.IntType(8), 2 * LANES), 2 * LANES)
    numbers = builder.sitofp(builder.sext(codes, ir.VectorType(INT, 2 * LANES)), ir.VectorType(FLOAT, 2 * LANES))
    return builder.fptrunc(numbers, _PAIRS)


def _scaled_nibbles(builder: ir.IRBuilder, dots: Any, total: Any, sums: Any, factors: Any, minima: Any) -> Any:
    """Emit total + factors * (dots - 128 * sums) + minima * sums."""
    exact = call(builder, "llvm.fmuladd.v16f32", FLOATS, sums, spread(builder, FLOAT(-_OFFSET)), dots)
    total = call(builder, "llvm.fmuladd.v16f32", FLOATS, exact, factors, total)
    return call(builder, "llvm.fmuladd.v16f32", FLOATS, minima, sums, total)


def _strip(builder: ir.IRBuilder, bits: int, rows: int, places: Sequence[Any], groups: Any, pairs: Any) -> None:
    """Emit the product of `rows` rows with one strip."""
    left, left_stride, sums, sums_stride, strip, out = places
    unpacked = _unpacked_nibbles if bits == 4 else _unpacked_bytes
    start = builder.block
    outer, inner, after, end = (builder.append_basic_block(name) for name in ("group", "pair", "scale", "end"))
    builder.branch(outer)

    builder.position_at_end(outer)
    group, here = builder.phi(LONG), builder.phi(LONG)
    totals = [builder.phi(FLOATS) for _ in range(rows * VECTORS)]
    first_pair = builder.mul(group, pairs)
    builder.branch(inner)

    builder.position_at_end(inner)
    pair = builder.phi(LONG)
    dots = [builder.phi(FLOATS) for _ in totals]
    width = LANES * bits // 4
    codes = builder.add(here, builder.mul(pair, LONG(VECTORS * width)))
    weights = [unpacked(builder, builder.add(codes, LONG(width * v))) for v in range(VECTORS)]
    added: list[Any] = []
    for row in range(rows):
        at = builder.add(row_of(builder, left, left_stride, LONG(row)), builder.shl(builder.add(first_pair, pair), LONG(2)))
        word = builder.bitcast(spread(builder, load_at(builder, at, INT, 2)), _PAIRS)
        before = dots[row * VECTORS : (row + 1) * VECTORS]
        added += [call(builder, _DOTS, FLOATS, dot, word, weight) for dot, weight in zip(before, weights, strict=True)]
    next_pair = builder.add(pair, LONG(1))
    builder.cbranch(builder.icmp_signed("<", next_pair, pairs), inner, after)
    for phi, first, value in zip([pair, *dots], [LONG(0), *[ZEROS] * len(dots)], [next_pair, *added], strict=True):
        phi.add_incoming(first, outer)
        phi.add_incoming(value, inner)

    builder.position_at_end(after)
    following = builder.add(here, builder.mul(pairs, LONG(VECTORS * width)))
    factors = []
    for _ in range(VECTORS * (2 if bits == 4 else 1)):
        factors.append(builder.fpext(load_at(builder, following, _HALVES, 2 * LANES), FLOATS))
        following = builder.add(following, LONG(2 * LANES))
    new: list[Any] = []
    for row in range(rows):
        if bits == 4:
            at = builder.add(row_of(builder, sums, sums_stride, LONG(row)), builder.shl(group, LONG(2)))
            row_sum = spread(builder, load_at(builder, at, FLOAT, 4))
        for v in range(VECTORS):
            index = row * VECTORS + v
            if bits == 4:
                scaled = _scaled_nibbles(builder, added[index], totals[index], row_sum, factors[v], factors[VECTORS + v])
            else:
                scaled = call(builder, "llvm.fmuladd.v16f32", FLOATS, added[index], factors[v], totals[index])
            new.append(scaled)
    next_group = builder.add(group, LONG(1))
    builder.cbranch(builder.icmp_signed("<", next_group, groups), outer, end)
    for phi, first, value in zip(
        [group, here, *totals], [LONG(0), strip, *[ZEROS] * len(totals)], [next_group, following, *new], strict=True
    ):
        phi.add_incoming(first, start)
        phi.add_incoming(value, after)

    builder.position_at_end(end)
    for index, value in enumerate(new):
        store_at(builder, value, builder.add(out, LONG(64 * index)), 64)


@intrinsic
def multiply_strip(
    _context: Any, strip: Any, first: Any, left: Any, sums: Any, out: Any, rows: Any, groups: Any, pairs: Any
) -> Any:
    """Multiply up to MOST_ROWS rows with a strip. Needs HAS_BF16.

    Args:
        strip: a pointer to int8 for codes of 8 bits, to uint8 for two codes in a byte; aligned to 64 bytes.
        first: where in it the strip begins, a multiple of 64.
        left: the address of bfloat16 rows, and bytes from row to row.
        sums: the address of float32 rows with the sum of each group of columns, and bytes from row to row; for 4 bits only.
        out: where float32 [rows, OUTPUTS] go, an address aligned to 64 bytes.
        rows: 1 to MOST_ROWS.
        groups: groups of columns, at least 1.
        pairs: columns of a group / 2.
    """
    matrix = types.UniTuple(types.int64, 2)
    bits = 8 if strip.dtype == types.int8 else 4

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        places = [builder.extract_value(argument, index) for argument in arguments[2:4] for index in range(2)]
        start = builder.add(builder.ptrtoint(arguments[0], LONG), arguments[1])
        out, rows, groups, pairs = arguments[4:]
        end = builder.append_basic_block("done")
        cases = [builder.append_basic_block(f"rows{count}") for count in range(1, MOST_ROWS + 1)]
        switch = builder.switch(rows, end)
        for count, block in enumerate(cases, 1):
            switch.add_case(LONG(count), block)
            builder.position_at_end(block)
            _strip(builder, bits, count, [*places, start, out], groups, pairs)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(strip, types.int64, matrix, matrix, *[types.int64] * 4), generate
