"""Products with quantised weights in the interpreter, against their definition computed in float64."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from kernels.gpu import quantised_dot, tuning
from kernels.gpu.fp8 import fp8_product, to_fp8
from kernels.gpu.launch import Compiled, compiling
from kernels.gpu.quantised_dense import quantised_dense
from kernels.gpu.quantised_linear import int4_product, int8_product, quantised_product
from kernels.gpu.weight_layout import Packed, pack_int4, pack_int8, unpack
from kernels.quantised import fp8_product as fp8_definition
from kernels.quantised import fp8_rows, int4_weight, int8_weight, product

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
LIMIT, SUM_LIMIT = 2**-11 + 1e-5, 5e-6
"""Relative, in the Frobenius norm: what one rounding to float16 may do, and sums in float32."""


@dataclass(frozen=True)
class Matrix:
    """A random matrix: as float32, and packed."""

    weight: torch.Tensor
    codes: torch.Tensor
    packed: Packed
    multiply: Callable[..., torch.Tensor]


def int4(outputs: int, columns: int, group: int, *, symmetric: bool = False) -> Matrix:
    codes = torch.randint(0, 16, (outputs, columns), dtype=torch.uint8)
    scales = torch.rand(outputs, -(-columns // group)) * 0.1
    minima = -8 * scales if symmetric else torch.randn_like(scales)
    packed = pack_int4(codes, scales, minima, group)
    return Matrix(int4_weight(codes, scales, minima, group), codes, packed, int4_product)


def int8(outputs: int, columns: int, group: int) -> Matrix:
    codes = torch.randint(-128, 128, (outputs, columns), dtype=torch.int8)
    scales = torch.rand(outputs, -(-columns // group)) * 0.01 if group else torch.rand(outputs) * 0.01
    return Matrix(int8_weight(codes, scales), codes, pack_int8(codes, scales), int8_product)


def matrix(bits: int, outputs: int, columns: int, group: int) -> Matrix:
    return int4(outputs, columns, group) if bits == 4 else int8(outputs, columns, group)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def exact_product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """In float64, with weights rounded where the kernels round them."""
    rounded = weight if len(x) == 1 else weight.to(x.dtype)
    out = x.double() @ rounded.double().t()
    return out if bias is None else out + bias.double()


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is taken holds NaN."""
    empty = torch.empty

    def poisoned(*size: object, **options: object) -> torch.Tensor:
        taken = empty(*size, **options)  # type: ignore[call-overload]
        if taken.dtype == torch.float8_e4m3fn:
            return taken.view(torch.uint8).fill_(0x7F).view(taken.dtype)
        return taken.fill_(torch.nan) if taken.is_floating_point() else taken

    monkeypatch.setattr(torch, "empty", poisoned)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize(("outputs", "columns"), [(1, 1), (17, 500), (63, 1000), (5, 128)])
def test_codes_of_four_bits_come_back(outputs: int, columns: int, group: int) -> None:
    made = int4(outputs, columns, group)
    assert torch.equal(unpack(made.packed), made.codes)


@pytest.mark.parametrize("group", [0, 32])
@pytest.mark.parametrize(("outputs", "columns"), [(1, 1), (17, 500), (5, 128)])
def test_codes_of_eight_bits_come_back(outputs: int, columns: int, group: int) -> None:
    made = int8(outputs, columns, group)
    assert torch.equal(unpack(made.packed), made.codes)


def test_every_code_is_in_every_place() -> None:
    nibbles = (torch.arange(16)[:, None] + torch.arange(128)).remainder(16).to(torch.uint8)
    packed = pack_int4(nibbles, torch.ones(16, 1), torch.zeros(16, 1), 128)
    assert torch.equal(quantised_dense(packed, F32), nibbles.float())
    signed = (torch.arange(256)[:, None] + torch.arange(4)).remainder(256).sub(128).to(torch.int8)
    assert torch.equal(quantised_dense(pack_int8(signed, torch.ones(256)), F32), signed.float())


@pytest.mark.parametrize("dtype", [F16, F32])
@pytest.mark.parametrize(
    ("bits", "outputs", "columns", "group"),
    [(4, 65, 300, 32), (4, 17, 200, 64), (4, 1, 1, 128), (4, 40, 257, 128), (8, 65, 300, 32), (8, 17, 129, 0)],
)
def test_dense_weights_have_the_bits_of_the_definition(
    bits: int, outputs: int, columns: int, group: int, dtype: torch.dtype
) -> None:
    made = matrix(bits, outputs, columns, group)
    assert torch.equal(quantised_dense(made.packed, dtype), made.weight.to(dtype))


@pytest.mark.parametrize("rows", [1, 2, 17, 63, 65, 129])
@pytest.mark.parametrize(
    ("bits", "outputs", "columns", "group"),
    [(4, 65, 1000, 32), (4, 17, 500, 64), (4, 63, 700, 128), (8, 65, 500, 32), (8, 17, 300, 0)],
)
def test_products_are_exact_up_to_one_rounding(rows: int, bits: int, outputs: int, columns: int, group: int) -> None:
    made = matrix(bits, outputs, columns, group)
    x, bias = torch.randn(rows, columns).to(F16), torch.randn(outputs)
    found = made.multiply(x, made.packed, bias)
    assert (found.dtype, found.shape) == (F16, (rows, outputs))
    # torch adds a bias of float16 where it multiplies
    added = bias if rows <= 128 else bias.to(F16)
    assert error(found, exact_product(x, made.weight, added)) < LIMIT
    rounded = made.weight if rows == 1 else made.weight.to(F16)
    assert error(product(x, rounded, added), exact_product(x, made.weight, added)) < LIMIT


@pytest.mark.parametrize("rows", [1, 7, 130])
@pytest.mark.parametrize("bits", [4, 8])
def test_sums_in_float32_are_not_rounded(bits: int, rows: int) -> None:
    made = matrix(bits, 33, 300, 32)
    x, bias = torch.randn(rows, 300).to(F16), torch.randn(33)
    found = quantised_product(x, made.packed, bias, F32)
    assert found.dtype == F32
    assert error(found, exact_product(x, made.weight, bias)) < SUM_LIMIT


@pytest.mark.parametrize("rows", [1, 5])
def test_symmetric_weights_and_rows_that_are_apart(rows: int) -> None:
    made = int4(33, 260, 128, symmetric=True)
    x = torch.full((rows, 700), torch.nan, dtype=F16)[:, 3:263]
    x[:] = torch.randn(rows, 260)
    assert error(int4_product(x, made.packed), exact_product(x, made.weight)) < LIMIT


@pytest.mark.parametrize("rows", [1, 3])
def test_inputs_behind_the_last_group_are_not_read(rows: int) -> None:
    made = int4(9, 130, 64)
    x = torch.full((rows + 1, 130), torch.nan, dtype=F16)
    x[:rows] = torch.randn(rows, 130)
    found = int4_product(x[:rows], made.packed)
    assert error(found, exact_product(x[:rows], made.weight)) < LIMIT


@pytest.mark.parametrize("rows", [1, 4, 130])
def test_scales_of_zero_leave_the_minima(rows: int) -> None:
    minima = torch.randn(7, 3).half().float()
    packed = pack_int4(torch.randint(0, 16, (7, 96), dtype=torch.uint8), torch.zeros(7, 3), minima, 32)
    x = torch.randn(rows, 96).to(F16)
    assert error(int4_product(x, packed), exact_product(x, minima.repeat_interleave(32, 1))) < LIMIT
    nothing = pack_int8(torch.ones(7, 96, dtype=torch.int8), torch.zeros(7, 3))
    assert not int8_product(x, nothing).any()


@pytest.mark.parametrize(("few", "many"), [(2, 16), (17, 32), (33, 64), (33, 128)])
def test_a_row_has_the_same_bits_in_any_batch_of_its_tile(few: int, many: int) -> None:
    made = int4(65, 300, 64)
    x = torch.randn(many, 300).to(F16)
    assert torch.equal(int4_product(x[:few], made.packed), int4_product(x, made.packed)[:few])


@pytest.mark.parametrize("bits", [4, 8])
def test_inputs_are_split_by_the_matrix_alone(bits: int) -> None:
    for capability in (0, 80, 86, 87, 89, 90, 100, 120):
        for outputs in (1, 1000, 2048, 4096, 8192, 28672, 151936):
            shape = {"capability": capability, "bits": bits, "outputs": outputs, "columns": 4096}
            entries = tuning.table("quantised_dot")
            taken = [entries[tuning.entry_for("quantised_dot", tile=tile, **shape)] for tile in quantised_dot.TILES]
            assert len({(entry.sizes["SPLITS"], entry.sizes["BLOCK_N"]) for entry in taken}) == 1


def test_no_rows_give_no_rows() -> None:
    made = int4(5, 40, 32)
    assert int4_product(torch.empty(0, 40, dtype=F16), made.packed).shape == (0, 5)


def test_what_does_not_fit_is_refused() -> None:
    made, x = int4(5, 40, 32), torch.randn(2, 40).to(F16)
    with pytest.raises(ValueError, match="4 bits, not 8"):
        int8_product(x, made.packed)
    with pytest.raises(ValueError, match=r"not torch\.float32"):
        int4_product(x.float(), made.packed)
    with pytest.raises(ValueError, match=r"or float32, not torch\.float64"):
        quantised_product(x, made.packed, None, torch.float64)
    with pytest.raises(ValueError, match="rows of 40 inputs"):
        int4_product(x[:, 1:], made.packed)
    with pytest.raises(ValueError, match="rows of 40 inputs"):
        int4_product(torch.randn(40, 2).to(F16).t(), made.packed)
    with pytest.raises(ValueError, match=r"5 contiguous numbers, not \[4\]"):
        int4_product(x, made.packed, torch.zeros(4))


def test_what_cannot_be_packed_is_refused() -> None:
    codes, factors = torch.zeros(2, 64, dtype=torch.uint8), torch.ones(2, 2)
    with pytest.raises(ValueError, match="groups of 48"):
        pack_int4(codes, factors, factors, 48)
    with pytest.raises(ValueError, match="up to 16"):
        pack_int4(codes + 16, factors, factors, 32)
    with pytest.raises(ValueError, match=r"\[2, 2\] factors"):
        pack_int4(codes, factors, factors, 64)
    with pytest.raises(ValueError, match="100000 exceeds"):
        pack_int4(codes, factors, 1e5 * factors, 32)
    with pytest.raises(ValueError, match=r"not torch\.uint8"):
        pack_int8(codes, factors)
    with pytest.raises(ValueError, match=r"\[3\] scales do not fit 2"):
        pack_int8(codes.to(torch.int8), torch.ones(3))


def fp8_numbers(*size: int) -> torch.Tensor:
    """All numbers but subnormal ones, as bfloat16; the largest is in every row, and with it the scale is a power of two."""
    codes = torch.randint(8, 127, size, dtype=torch.uint8)
    codes[:, -1] = 126
    signs = torch.randint(0, 2, size, dtype=torch.uint8) << 7
    return (codes | signs).view(torch.float8_e4m3fn).to(BF16)


@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (3, 64), (5, 1040)])
def test_rows_in_8_bit_floating_point(monkeypatch: pytest.MonkeyPatch, rows: int, columns: int) -> None:
    """The product is torch's: what it is given is compared, code for code.

    Numbers need no rounding: that of Triton's interpreter is wrong for ties, and loses the carry (3.9).
    """
    x = fp8_numbers(rows, columns) * torch.tensor(2.0).pow(torch.randint(-9, 9, (rows, 1))).to(BF16)
    x[:, :-1:7] = 0
    x[-1] *= rows == 1
    given: dict[str, torch.Tensor] = {}
    multiply = torch._scaled_mm

    def seen(codes: torch.Tensor, *arguments: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
        given.update(codes=codes, scales=options["scale_a"])
        return multiply(codes, *arguments, **options)

    monkeypatch.setattr(torch, "_scaled_mm", seen)
    weight, bias = to_fp8(torch.randn(32, columns)), torch.randn(32).to(BF16)
    # the columns on the left belong to another matrix
    found = fp8_product(torch.cat([torch.full_like(x, torch.nan), x], 1)[:, columns:], weight, bias)
    codes, scales = fp8_rows(x)
    assert torch.equal(given["codes"].view(torch.uint8), codes.view(torch.uint8))
    assert torch.equal(given["scales"], scales)
    assert error(found, fp8_definition(x, weight.codes, weight.scales, bias).double()) < 4e-3


def test_scales_of_8_bit_floating_point_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    x, given = torch.randn(9, 1504).to(BF16), list[torch.Tensor]()

    def seen(_codes: torch.Tensor, *_: torch.Tensor, scale_a: torch.Tensor, **_options: object) -> torch.Tensor:
        given.append(scale_a)
        return torch.zeros(9, 16)

    monkeypatch.setattr(torch, "_scaled_mm", seen)
    fp8_product(x, to_fp8(torch.randn(16, 1504)))
    assert torch.equal(given[0], fp8_rows(x)[1])


def test_fp8_is_refused_where_it_is_not_possible() -> None:
    weight, seen = to_fp8(torch.randn(16, 32)), list[Compiled]()
    with pytest.raises(ValueError, match="multiples of 16"):
        to_fp8(torch.randn(16, 30))
    with pytest.raises(ValueError, match="rows of 32 inputs"):
        fp8_product(torch.randn(2, 16).to(BF16), weight)
    with pytest.raises(ValueError, match=r"not torch\.float32"):
        fp8_product(torch.randn(2, 32), weight)
    with compiling(87, seen.append), pytest.raises(ValueError, match="of 89, not 87"):
        fp8_product(torch.randn(2, 32).to(BF16), weight)
    assert not seen
