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


def _dots(
    builder: ir.IRBuilder, bits: int, rows: int, left: Any, left_stride: Any, codes: Any, pairs: Any
) -> tuple[list[Any], Any]:
    """Emit the dot products of `rows` rows with the codes of a group; the address behind the codes comes with them.

    Args:
        left: the address of the group's columns in the first row.
    """
    width, unpacked = LANES * bits // 4, _unpacked_nibbles if bits == 4 else _unpacked_bytes
    start, loop, end = builder.block, builder.append_basic_block("pair"), builder.append_basic_block("pairs")
    builder.branch(loop)
    builder.position_at_end(loop)
    pair, here = builder.phi(LONG), builder.phi(LONG)
    before = [builder.phi(FLOATS) for _ in range(rows * VECTORS)]
    weights = [unpacked(builder, builder.add(here, LONG(width * v))) for v in range(VECTORS)]
    after: list[Any] = []
    for row in range(rows):
        at = builder.add(row_of(builder, left, left_stride, LONG(row)), builder.shl(pair, LONG(2)))
        word = builder.bitcast(spread(builder, load_at(builder, at, INT, 2)), _PAIRS)
        own = before[row * VECTORS : (row + 1) * VECTORS]
        after += [call(builder, _DOTS, FLOATS, dot, word, weight) for dot, weight in zip(own, weights, strict=True)]
    next_pair, behind = builder.add(pair, LONG(1)), builder.add(here, LONG(VECTORS * width))
    builder.cbranch(builder.icmp_signed("<", next_pair, pairs), loop, end)
    firsts = [LONG(0), codes, *[ZEROS] * len(before)]
    for phi, first, value in zip([pair, here, *before], firsts, [next_pair, behind, *after], strict=True):
        phi.add_incoming(first, start)
        phi.add_incoming(value, loop)
    builder.position_at_end(end)
    return after, behind


def _factors(builder: ir.IRBuilder, bits: int, address: Any) -> tuple[list[Any], Any]:
    """Emit loads of a group's scales and, with 4 bits, its minima; the address behind them comes with them."""
    factors = []
    for _ in range(VECTORS * (2 if bits == 4 else 1)):
        factors.append(builder.fpext(load_at(builder, address, _HALVES, 2 * LANES), FLOATS))
        address = builder.add(address, LONG(2 * LANES))
    return factors, address


def _added(builder: ir.IRBuilder, total: Any, dots: Any, sums: Any, factors: Sequence[Any]) -> Any:
    """Emit total + scale * dots, or with a minimum total + scale * (dots - 128 * sums) + minimum * sums."""
    if len(factors) == 1:
        return call(builder, "llvm.fmuladd.v16f32", FLOATS, dots, factors[0], total)
    exact = call(builder, "llvm.fmuladd.v16f32", FLOATS, sums, spread(builder, FLOAT(-_OFFSET)), dots)
    total = call(builder, "llvm.fmuladd.v16f32", FLOATS, exact, factors[0], total)
    return call(builder, "llvm.fmuladd.v16f32", FLOATS, factors[1], sums, total)


def _strip(builder: ir.IRBuilder, bits: int, rows: int, places: Sequence[Any], groups: Any, pairs: Any) -> None:
    """Emit the product of `rows` rows with one strip."""
    left, left_stride, sums, sums_stride, strip, out = places
    start, loop, end = builder.block, builder.append_basic_block("group"), builder.append_basic_block("groups")
    builder.branch(loop)
    builder.position_at_end(loop)
    group, here = builder.phi(LONG), builder.phi(LONG)
    before = [builder.phi(FLOATS) for _ in range(rows * VECTORS)]
    columns = builder.add(left, builder.shl(builder.mul(group, pairs), LONG(2)))
    dots, behind = _dots(builder, bits, rows, columns, left_stride, here, pairs)
    factors, behind = _factors(builder, bits, behind)
    after: list[Any] = []
    for row in range(rows):
        row_sum = None
        if bits == 4:
            at = builder.add(row_of(builder, sums, sums_stride, LONG(row)), builder.shl(group, LONG(2)))
            row_sum = spread(builder, load_at(builder, at, FLOAT, 4))
        for v in range(VECTORS):
            index = row * VECTORS + v
            after.append(_added(builder, before[index], dots[index], row_sum, factors[v::VECTORS]))
    next_group = builder.add(group, LONG(1))
    builder.cbranch(builder.icmp_signed("<", next_group, groups), loop, end)
    firsts = [LONG(0), strip, *[ZEROS] * len(before)]
    for phi, first, value in zip([group, here, *before], firsts, [next_group, behind, *after], strict=True):
        phi.add_incoming(first, start)
        phi.add_incoming(value, builder.block)
    builder.position_at_end(end)
    for index, value in enumerate(after):
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
