"""Linear layers in every precision, against the product with the weights that they stand for, in float64."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.precision.linear import Layer, Linear, Side
from backends.engine.precision.rounding import to_int4_blocks, to_int8_blocks, to_int8_rows
from backends.engine.weights.source import Int4Blocks, Int8Blocks
from kernels.cpu import grouped
from kernels.cpu.products import Int4Product, Int8Product
from kernels.ops import Product, open_device

F32, BF16 = torch.float32, torch.bfloat16
GROUPS = (32, 64, 128)
types = pytest.mark.parametrize("dtype", [F32, BF16])
outputs_of, columns_of = st.sampled_from([1, 16, 17, 96]), st.sampled_from([16, 64, 65, 100, 192, 576])
rows_of, seeds = st.sampled_from([1, 2, 5, 33]), st.integers(0, 1 << 30)
sizes = st.sampled_from([1e-3, 0.1, 1.0, 100.0])


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def meant(blocks: Int4Blocks | Int8Blocks) -> torch.Tensor:
    """The matrix that blocks stand for."""
    if isinstance(blocks, Int8Blocks):
        return blocks.codes * blocks.scales.repeat_interleave(32, 1)
    scales, minima = (part.repeat_interleave(blocks.group, 1) for part in (blocks.scales, blocks.minima))
    return blocks.codes * scales + minima


def error(found: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> float:
    """Relative to the size of what is summed, so that a sum that nearly cancels is not asked for more than it can be."""
    exact = x.double() @ weight.double().t() + (0 if bias is None else bias.double())
    return float((found.double() - exact).norm() / (x.double().norm() * weight.double().norm() / weight.shape[1] ** 0.5))


@settings(max_examples=30, deadline=None)
@given(group=st.sampled_from(GROUPS), outputs=outputs_of, columns=columns_of, seed=seeds, size=sizes)
def test_four_bits_are_as_near_as_sixteen_levels_allow(group: int, outputs: int, columns: int, seed: int, size: float) -> None:
    weight = size * numbers(seed, outputs, columns)
    blocks = to_int4_blocks(weight, group)
    assert blocks.codes.dtype == torch.uint8
    assert int(blocks.codes.max()) <= 15
    assert blocks.codes.shape == (outputs, -(-columns // group) * group)
    assert blocks.scales.shape == blocks.minima.shape == (outputs, -(-columns // group))
    for factors in (blocks.scales, blocks.minima):
        assert torch.equal(factors, factors.half().float())
    off = (meant(blocks)[:, :columns] - weight).abs()
    steps = blocks.scales.repeat_interleave(group, 1)[:, :columns]
    # Half a step, and at the ends what is lost of the scale and the minimum in float16.
    assert (off <= 0.5 * steps + 2.0**-9 * weight.abs().max() + 1e-6).all()


@settings(max_examples=30, deadline=None)
@given(outputs=outputs_of, columns=columns_of, seed=seeds, size=sizes)
def test_eight_bits_in_groups_are_as_near_as_their_levels_allow(outputs: int, columns: int, seed: int, size: float) -> None:
    weight = size * numbers(seed, outputs, columns)
    blocks = to_int8_blocks(weight)
    assert blocks.codes.dtype == torch.int8
    assert blocks.codes.shape == (outputs, -(-columns // 32) * 32)
    assert torch.equal(blocks.scales, blocks.scales.half().float())
    off = (meant(blocks)[:, :columns] - weight).abs()
    steps = blocks.scales.repeat_interleave(32, 1)[:, :columns]
    assert (off <= 0.5 * steps + 2.0**-11 * weight.abs() + 4e-6).all()


def test_a_group_of_equal_numbers_is_held_exactly() -> None:
    weight = torch.cat([torch.full((16, 32), 3.0), torch.zeros(16, 32)], 1)
    assert torch.equal(meant(to_int4_blocks(weight, 32)), weight)
    assert torch.equal(meant(to_int8_blocks(torch.zeros(16, 32))), torch.zeros(16, 32))


def four_bits(weight: torch.Tensor, group: int) -> Int4Blocks:
    return to_int4_blocks(weight, group)


def eight_bits(weight: torch.Tensor, group: int) -> Int8Blocks:
    return to_int8_blocks(weight)


def product(blocks: Int4Blocks | Int8Blocks, bias: torch.Tensor | None, threads: int = 1) -> Product:
    device = open_device(threads=threads)
    if isinstance(blocks, Int8Blocks):
        return device.int8(blocks.codes, blocks.scales, bias)
    return device.int4(blocks.codes, blocks.scales, blocks.minima, blocks.group, bias)


@pytest.mark.skipif(not grouped.AVAILABLE, reason="this CPU does not multiply bfloat16")
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rounded", [four_bits, eight_bits])
@settings(max_examples=30, deadline=None)
@given(group=st.sampled_from(GROUPS), outputs=outputs_of, columns=columns_of, rows=rows_of, seed=seeds)
def test_grouped_products_are_those_of_their_levels(
    biased: bool,
    rounded: Callable[[torch.Tensor, int], Int4Blocks | Int8Blocks],
    group: int,
    outputs: int,
    columns: int,
    rows: int,
    seed: int,
) -> None:
    blocks, x = rounded(numbers(seed, outputs, columns), group), numbers(seed + 1, rows, columns).bfloat16()
    bias = numbers(seed + 2, outputs) if biased else None
    one, two = (product(blocks, bias, threads)(x) for threads in (1, 2))
    assert one.shape == (rows, outputs)
    assert one.is_contiguous()
    assert torch.equal(one, two)
    exact = x.double() @ meant(blocks).double()[:, :columns].t() + (0 if bias is None else bias.double())
    # One rounding to bfloat16, and what float32 loses where a sum nearly cancels.
    size = x.double().abs() @ meant(blocks).double()[:, :columns].abs().t()
    assert ((one.double() - exact).abs() <= 2.0**-8 * exact.abs() + 2e-5 * size + 1e-9).all()


@pytest.mark.skipif(not grouped.AVAILABLE, reason="this CPU does not multiply bfloat16")
@pytest.mark.parametrize("rounded", [four_bits, eight_bits])
def test_a_row_has_the_same_bits_in_any_batch(rounded: Callable[[torch.Tensor, int], Int4Blocks | Int8Blocks]) -> None:
    layer = product(rounded(numbers(1, 100, 576), 32), numbers(2, 100))
    x = numbers(3, 130, 576).bfloat16()
    whole = layer(x)
    for first, end in ((0, 1), (7, 9), (60, 69), (64, 65), (3, 130)):
        assert torch.equal(layer(x[first:end].contiguous()), whole[first:end])


@pytest.mark.parametrize("biased", [False, True])
@settings(max_examples=30, deadline=None)
@given(group=st.sampled_from(GROUPS), outputs=outputs_of, columns=columns_of, rows=rows_of, seed=seeds)
def test_four_bit_products_of_torch_are_those_of_their_levels(
    biased: bool, group: int, outputs: int, columns: int, rows: int, seed: int
) -> None:
    blocks, x = to_int4_blocks(numbers(seed, outputs, columns), group), numbers(seed + 1, rows, columns).bfloat16()
    bias = numbers(seed + 2, outputs).bfloat16().float() if biased else None
    found = Int4Product(blocks.codes, blocks.scales, blocks.minima, group, bias)(x)
    assert found.dtype == BF16
    assert found.shape == (rows, outputs)
    assert found.is_contiguous()
    assert error(found, x, meant(blocks)[:, :columns], bias) < 1e-2


@pytest.mark.parametrize("biased", [False, True])
@settings(max_examples=30, deadline=None)
@given(outputs=outputs_of, columns=columns_of, rows=rows_of, seed=seeds)
def test_eight_bit_weights_multiply_bfloat16(biased: bool, outputs: int, columns: int, rows: int, seed: int) -> None:
    weight, x = to_int8_rows(numbers(seed, outputs, columns)), numbers(seed + 1, rows, columns).bfloat16()
    bias = numbers(seed + 2, outputs).bfloat16().float() if biased else None
    found = Int8Product(weight.codes, weight.scales, bias)(x)
    assert found.dtype == BF16
    # Scales are kept in bfloat16, as the kernel wants them.
    assert error(found, x, weight.codes * weight.scales.bfloat16().float()[:, None], bias) < 1e-2


@types
@pytest.mark.parametrize("biased", [False, True])
@settings(max_examples=20, deadline=None)
@given(outputs=outputs_of, columns=columns_of, rows=rows_of, seed=seeds)
def test_eight_bit_activations_have_a_scale_of_their_own_in_each_row(
    dtype: torch.dtype, biased: bool, outputs: int, columns: int, rows: int, seed: int
) -> None:
    weight = to_int8_rows(numbers(seed, outputs, columns))
    loud = 10.0 ** torch.arange(rows).remainder(7).sub(3)[:, None]
    x = (numbers(seed + 1, rows, columns) * loud).to(dtype)
    bias = numbers(seed + 2, outputs) if biased else None
    one, two = (open_device(threads=threads).int8_dynamic(weight.codes, weight.scales, bias)(x) for threads in (1, 2))
    assert one.dtype == dtype
    assert torch.equal(one, two)
    rounded = to_int8_rows(x)
    sums = rounded.codes.double() @ weight.codes.double().t()
    exact = sums * rounded.scales[:, None].double() * weight.scales.double()
    size = exact.abs()
    if bias is not None:
        exact, size = exact + bias, size + bias.abs()
    # A code that falls between two may be rounded either way: one step of one column, and one rounding of the sum.
    step = rounded.scales[:, None] * weight.scales * 127 * 1.01
    flips = ((x.double() / rounded.scales[:, None]).frac().abs() - 0.5).abs().lt(1e-4).sum(-1, keepdim=True)
    assert ((one.double() - exact).abs() <= flips * step + (2.0**-8 if dtype == BF16 else 2e-6) * size + 1e-9).all()


@types
def test_a_row_of_zeros_is_not_divided_by_its_size(dtype: torch.dtype) -> None:
    weight = to_int8_rows(torch.cat([numbers(1, 15, 64), torch.zeros(1, 64)]))
    x = torch.cat([torch.zeros(1, 64), numbers(2, 1, 64)]).to(dtype)
    found = open_device(threads=1).int8_dynamic(weight.codes, weight.scales, None)(x)
    assert torch.equal(found[0], torch.zeros(16, dtype=dtype))
    assert float(found[1, 15]) == 0
    assert found.isfinite().all()


@settings(max_examples=20, deadline=None)
@given(outputs=outputs_of, columns=columns_of, seed=seeds)
def test_eight_bits_reach_the_largest_weight_of_each_row(outputs: int, columns: int, seed: int) -> None:
    weight = numbers(seed, outputs, columns) * 10.0 ** torch.arange(outputs).remainder(9).sub(4)[:, None]
    rounded = to_int8_rows(weight)
    assert (rounded.codes.abs().amax(-1) == 127).all()
    assert ((rounded.codes * rounded.scales[:, None] - weight).abs() <= 0.501 * rounded.scales[:, None]).all()


@pytest.mark.parametrize("stored", [F32, BF16])
@types
def test_dense_layers_convert_activations_and_give_back_their_type(dtype: torch.dtype, stored: torch.dtype) -> None:
    weight, bias, x = numbers(1, 48, 64).to(stored), numbers(2, 48), numbers(3, 5, 64).to(dtype)
    found = open_device(threads=1).dense(weight, bias)(x)
    assert found.dtype == dtype
    assert error(found, x, weight, bias) < (1e-6 if dtype == stored == F32 else 6e-3)


def test_a_row_has_the_same_bits_in_any_batch_where_weights_are_bfloat16() -> None:
    """Alone, oneDNN's product of these would differ in one or two numbers."""
    layer = open_device(threads=1).dense(numbers(1, 4096, 4096).bfloat16(), None)
    x = numbers(2, 20, 4096).bfloat16()
    whole = layer(x)
    for row in range(20):
        assert torch.equal(layer(x[row : row + 1]), whole[row : row + 1])
    assert torch.equal(layer(x[3:8].contiguous()), whole[3:8])


class _Marked:
    """A layer that says who it is."""

    kind = "marked"

    def __init__(self, mark: float, outputs: int) -> None:
        self._mark, self._outputs, self.nbytes = mark, outputs, outputs

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), self._outputs), self._mark)


def test_layers_side_by_side_keep_their_order() -> None:
    dense = Layer(open_device(threads=1).dense(torch.ones(3, 8), None), "fp32")
    parts: list[Linear] = [_Marked(1.0, 2), dense, _Marked(3.0, 1)]
    side = Side(parts)
    assert side(torch.ones(2, 8)).tolist() == [[1, 1, 8, 8, 8, 3]] * 2
    assert (side.kind, side.nbytes) == ("marked+fp32", 2 + 3 * 8 * 4 + 1)
