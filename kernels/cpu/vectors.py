"""Vectors of 16 float32 inside CPU kernels, for loops that LLVM does not vectorise by itself, or not well.

A vector is a value like any other: it has `+`, `-` and `*`, and lives in registers; where they are shorter than 512 bits LLVM
uses several. Pointers are to float32, or to uint16 that hold bfloat16; a number's own alignment is enough.
"""

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 16
"""Numbers in a vector."""

_FEATURES = cpu_target.target_context.codegen().magic_tuple()[2].split(",")

HAS_LONG_REGISTERS = "+avx512f" in _FEATURES
"""Whether numba compiles for 32 registers of 512 bits."""

HAS_BF16 = HAS_LONG_REGISTERS and "+avx512bf16" in _FEATURES
"""Whether numba compiles for a CPU that rounds to bfloat16 and multiplies it by itself."""

FLOAT, SHORT, INT, LONG = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS, SHORTS, INTS = (ir.VectorType(kind, LANES) for kind in (FLOAT, SHORT, INT))
ZEROS = ir.Constant(FLOATS, [0.0] * LANES)

# Minimax polynomials for (2^f - 1) / f on [-1/2, 1/2], the highest power first, found by Lawson's iteration.
_FINE = (1.326472731307149e-3, 9.671512991189957e-3, 5.550733581185341e-2, 2.402224242687225e-1, 6.931470036506653e-1)
_COARSE = (5.500892922282219e-2, 2.422109693288803e-1, 6.932829022407532e-1)


class BrainFloat(ir.Type):
    """bfloat16, which LLVM knows and llvmlite does not."""

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrainFloat)

    def __hash__(self) -> int:
        return hash(BrainFloat)


class Vector(types.Type):
    """The numba type of 16 float32."""

    def __init__(self) -> None:
        super().__init__(name="float32x16")


vector = Vector()


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """An LLVM vector, in registers and in memory alike."""

    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, FLOATS)


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: Any) -> Any:
    """Emit a call of an LLVM intrinsic, by its full name."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [argument.type for argument in arguments]), name)
    return builder.call(function, arguments)


def spread(builder: ir.IRBuilder, number: Any) -> Any:
    """Emit the vector whose every lane is `number`."""
    nothing = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(nothing, number, INT(0)), nothing, ir.Constant(INTS, [0] * LANES))


def widened(builder: ir.IRBuilder, halves: Any) -> Any:
    """Emit a vector of float32 from one of bfloat16 bits, both as integers."""
    integers = ir.VectorType(INT, halves.type.count)
    return builder.shl(builder.zext(halves, integers), ir.Constant(integers, [16] * halves.type.count))


def _rounded(builder: ir.IRBuilder, value: Any) -> Any:
    """Emit bfloat16, to nearest, ties to even. Without the instruction LLVM would call a function that may not be there."""
    if HAS_BF16:
        return builder.fptrunc(value, ir.VectorType(BrainFloat(), LANES))
    bits, sixteen = builder.bitcast(value, INTS), spread(builder, INT(16))
    odd = builder.and_(builder.lshr(bits, sixteen), spread(builder, INT(1)))
    return builder.trunc(builder.lshr(builder.add(bits, builder.add(odd, spread(builder, INT(0x7FFF)))), sixteen), SHORTS)


def operation(result: Any, *parameters: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function for kernels of one that emits LLVM instructions: it gets the IR builder and a value per parameter.

    Args:
        result: the numba type of the result.
        parameters: the numba types of the parameters; numba converts what is passed.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
            return emit(builder, *arguments)

        def typed(_context: Any, *_given: Any) -> Any:
            return result(*parameters), generate

        # numba would pass a tuple for `*_given`; it looks at the signature only.
        names = ["context", *(f"given_{index}" for index in range(len(parameters)))]
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        vars(typed)["__signature__"] = inspect.Signature([inspect.Parameter(name, positional) for name in names])
        return intrinsic(typed)

    return decorate


def _greater(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _folded(builder: ir.IRBuilder, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    for width in (8, 4, 2, 1):
        moved = ir.Constant(INTS, [(lane + width) % LANES for lane in range(LANES)])
        value = combine(value, builder.shuffle_vector(value, value, moved))
    return builder.extract_element(value, INT(0))


@operation(vector, types.float32)
def every(builder: ir.IRBuilder, number: Any) -> Any:
    """The number, in every lane."""
    return spread(builder, number)


@operation(vector, vector, vector)
def maximum(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The greater of each pair of lanes; the second where one is NaN."""
    return _greater(builder, x, y)


@operation(types.float32, vector)
def highest(builder: ir.IRBuilder, value: Any) -> Any:
    """The greatest lane."""
    return _folded(builder, value, lambda x, y: _greater(builder, x, y))


@operation(types.float32, vector)
def total(builder: ir.IRBuilder, value: Any) -> Any:
    """The sum of the lanes."""
    return _folded(builder, value, builder.fadd)


@intrinsic
def load_vector(_context: Any, pointer: Any, index: Any) -> Any:
    """Read 16 numbers as float32."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        if pointer.dtype == types.float32:
            return builder.load(builder.bitcast(place, FLOATS.as_pointer()), align=4)
        halves = builder.load(builder.bitcast(place, SHORTS.as_pointer()), align=2)
        return builder.bitcast(widened(builder, halves), FLOATS)

    return vector(pointer, types.int64), generate


@intrinsic
def store_vector(_context: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Write 16 float32 as what `pointer` holds; into bfloat16 rounded to nearest, ties to even."""
    half = pointer.dtype == types.uint16

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        number = _rounded(builder, arguments[2]) if half else arguments[2]
        builder.store(number, builder.bitcast(place, number.type.as_pointer()), align=2 if half else 4)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector), generate


@intrinsic
def exp2(_context: Any, like: Any, exponent: Any) -> Any:
    """2 to the x in every lane, for x up to 127; at -126 and below it is 0.

    2^n by the exponent bits, the rest by a polynomial that is exact at 0.

    Args:
        like: a pointer to what the result is good for. Relative error: for float32 below 2e-7, for bfloat16 below 2e-4.
        exponent: the vector of x.
    """
    coefficients = _COARSE if like.dtype == types.uint16 else _FINE

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
        x = arguments[1]
        n = call(builder, "llvm.nearbyint.v16f32", FLOATS, x)
        f = builder.fsub(x, n)
        power = spread(builder, FLOAT(coefficients[0]))
        for coefficient in (*coefficients[1:], 1.0):
            power = builder.fadd(
                builder.fmul(power, f, ("contract",)), spread(builder, FLOAT(coefficient)), flags=("contract",)
            )
        shift = builder.shl(builder.fptosi(n, INTS), spread(builder, INT(23)))
        scaled = builder.bitcast(builder.add(builder.bitcast(power, INTS), shift), FLOATS)
        return builder.select(builder.fcmp_ordered(">", x, spread(builder, FLOAT(-126.0))), scaled, ZEROS)

    return vector(like, vector), generate


def _operator(symbol: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a Python operator work on two vectors, by a function that emits its instruction."""

    def decorate(emit: Callable[..., Any]) -> Any:
        infer_global(symbol)(type(symbol.__name__, (ConcreteTemplate,), {"cases": [signature(vector, vector, vector)]}))

        @lower_builtin(symbol, vector, vector)
        def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Sequence[Any]) -> Any:
            return emit(builder, *arguments)

        return generate

    return decorate


@_operator(operator.add)
def _add(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    return builder.fadd(x, y, flags=("contract",))


@_operator(operator.sub)
def _subtract(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    return builder.fsub(x, y, flags=("contract",))


@_operator(operator.mul)
def _multiply(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    return builder.fmul(x, y, flags=("contract",))
