"""Rounding rows to int8 and back, and the products of a head with rows of any length."""

import pytest
import torch

from kernels.cpu.head import head_bf16, head_f32, head_int8
from kernels.cpu.int8 import dequantise_bf16, dequantise_f32, quantise_bf16, quantise_f32
from kernels.cpu.launch import Launch

F32, BF16 = torch.float32, torch.bfloat16
types = pytest.mark.parametrize("dtype", [F32, BF16])
lengths = pytest.mark.parametrize("columns", [1, 15, 16, 17, 100, 576])


def random(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


@types
@lengths
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_rounded_to_the_nearest_of_255_levels(dtype: torch.dtype, columns: int, threads: int) -> None:
    x = (random(7, columns) * torch.logspace(-8, 8, 7)[:, None]).to(dtype)
    x[2] = 0
    x[3] = -x[3].abs()
    codes, scales = torch.full((7, columns), 99, dtype=torch.int8), torch.full((7,), torch.nan)
    kernel = quantise_bf16 if dtype == BF16 else quantise_f32
    Launch(kernel, x, codes, scales, 7, columns, threads=threads)()
    top = x.float().abs().amax(1)
    assert torch.allclose(scales, top / 127, rtol=1e-6, atol=0)
    exact = torch.where(top > 0, 127 / top.double(), 0)[:, None] * x.double()
    assert (codes - exact).abs().max() < 0.5 + 1e-4
    assert codes.abs().amax(1).tolist() == [127, 127, 0, 127, 127, 127, 127]


@types
@lengths
@pytest.mark.parametrize("biased", [False, True])
def test_sums_become_numbers_again(dtype: torch.dtype, columns: int, biased: bool) -> None:
    sums = torch.randint(-(10**7), 10**7, (5, columns), dtype=torch.int32)
    rows, scales, bias = random(5).abs() / 1e3, random(columns).abs() / 1e3, random(columns)
    out = torch.full((5, columns), torch.nan, dtype=dtype)
    kernel = dequantise_bf16 if dtype == BF16 else dequantise_f32
    Launch(kernel, sums, rows, scales, bias if biased else None, out, 5, columns, threads=2)()
    exact = sums.double() * rows.double()[:, None] * scales.double() + (bias.double() if biased else 0)
    assert torch.allclose(out.double(), exact, rtol=2**-8 if dtype == BF16 else 1e-6, atol=1e-6)


@types
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 40, 100])
@pytest.mark.parametrize("rows", [1, 2, 5, 8])
def test_logits_of_rows_that_fill_no_vector(dtype: torch.dtype, columns: int, rows: int) -> None:
    x, weight = random(rows, columns), random(70, columns).to(dtype)
    logits = torch.full((rows, 70), torch.nan)
    Launch(head_bf16 if dtype == BF16 else head_f32, x, weight, None, logits, rows, 70, columns, threads=2)()
    assert torch.allclose(logits.double(), x.double() @ weight.double().t(), atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 4, 33])
def test_codes_of_a_head_share_a_scale_by_32_columns(rows: int) -> None:
    codes, scales = torch.randint(-127, 128, (70, 96), dtype=torch.int8), random(70, 3).abs()
    x, logits = random(rows, 96), torch.full((rows, 70), torch.nan)
    Launch(head_int8, x, codes, scales, logits, rows, 70, 96, threads=2)()
    exact = x.double() @ (codes.double() * scales.double().repeat_interleave(32, 1)).t()
    assert torch.allclose(logits.double(), exact, rtol=1e-5, atol=2e-3)
