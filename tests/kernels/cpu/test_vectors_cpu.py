"""Vectors inside CPU kernels."""

from typing import Any

import pytest
import torch

from kernels.cpu.launch import Launch, kernel
from kernels.cpu.numbers import floats_at, halves_at
from kernels.cpu.vectors import LANES, every, exp2, highest, load_vector, store_vector, total


@kernel
def powers_of_two(a: Any) -> None:
    x, fine, coarse = floats_at(a[1]), floats_at(a[2]), floats_at(a[3])
    for index in range(0, a[4], LANES):
        exponent = load_vector(x, index)
        store_vector(fine, index, exp2(x, exponent))
        store_vector(coarse, index, exp2(halves_at(a[1]), exponent))


@kernel
def rounded_and_folded(a: Any) -> None:
    x, halves, again, folded = floats_at(a[1]), halves_at(a[2]), floats_at(a[3]), floats_at(a[4])
    for index in range(0, a[5], LANES):
        value = load_vector(x, index)
        store_vector(halves, index, value)
        store_vector(again, index, load_vector(halves, index))
        store_vector(folded, 2 * index, every(highest(value)))
        store_vector(folded, 2 * index + LANES, every(total(value)))


def test_powers_of_two_are_as_exact_as_their_use_needs() -> None:
    x = torch.linspace(-125.9, 126.9, 1 << 16)
    fine, coarse = torch.empty_like(x), torch.empty_like(x)
    Launch(powers_of_two, x, fine, coarse, x.numel(), threads=1)()
    exact = torch.exp2(x.double())
    assert ((fine - exact) / exact).abs().max() < 2e-7
    assert ((coarse - exact) / exact).abs().max() < 2e-4


@pytest.mark.parametrize("exponent", [-torch.inf, -3e38, -1000.0, -127.0, -126.0])
def test_powers_below_normal_numbers_are_zero(exponent: float) -> None:
    x = torch.full((LANES,), exponent)
    fine, coarse = torch.full((LANES,), torch.nan), torch.full((LANES,), torch.nan)
    Launch(powers_of_two, x, fine, coarse, LANES, threads=1)()
    assert not fine.any()
    assert not coarse.any()


def test_vectors_round_to_bfloat16_as_torch_does_and_fold() -> None:
    x = torch.cat([torch.randn(992) * 1e3, torch.tensor([1.00390625, 1.01171875, -1.00390625, 0.0] * 8)])
    halves, again, folded = torch.empty(1024, dtype=torch.bfloat16), torch.empty(1024), torch.empty(64, 2, LANES)
    Launch(rounded_and_folded, x, halves, again, folded, 1024, threads=1)()
    assert torch.equal(halves, x.to(torch.bfloat16))
    assert torch.equal(again, halves.float())
    assert torch.equal(folded[:, 0], x.view(64, LANES).amax(1, keepdim=True).expand(64, LANES))
    torch.testing.assert_close(folded[:, 1, 0], x.view(64, LANES).sum(1), rtol=1e-5, atol=1e-3)
