"""Blocks on their way between workers, in the interpreter, against the definition."""

import pytest
import torch

from kernels.gpu.transfer import dequantise_blocks, gather_blocks, quantise_blocks, scatter_blocks
from kernels.kv_codes import LIMITS, decode, encode

F16, F32, BF16, INT8, FP8 = torch.float16, torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn
SHAPES = [(2, 2, 16, 3, 64), (1, 2, 4, 1, 5), (3, 2, 8, 2, 17), (1, 2, 1, 1, 1)]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def noise(dtype: torch.dtype, *size: int) -> torch.Tensor:
    """Any bits there are, also those that are no numbers."""
    return torch.randint(0, 256, (*size[:-1], size[-1] * dtype.itemsize), dtype=torch.uint8).view(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [F32, BF16, F16, INT8, FP8])
@pytest.mark.parametrize("gap", [0, 2, 3])
def test_blocks_are_copied_byte_for_byte(dtype: torch.dtype, shape: tuple[int, ...], gap: int) -> None:
    size = torch.Size(shape).numel()
    memory = noise(dtype, 9, size + gap)
    cache, ids = memory[:, :size].unflatten(1, shape), torch.tensor([7, 0, 3, 7])
    staging = gather_blocks(cache, ids)
    assert staging.is_contiguous()
    for staged, block in zip(staging, ids.tolist(), strict=True):
        assert torch.equal(bits(staged), bits(cache[block]))

    there = noise(dtype, 9, size + gap)
    before = there.clone()
    to = torch.tensor([8, 2, 0], dtype=torch.int32)
    scatter_blocks(staging[:3], there[:, :size].unflatten(1, shape), to)
    for staged, block in zip(staging, to.tolist(), strict=False):
        assert torch.equal(bits(there[block, :size]), bits(staged.flatten()))
        assert torch.equal(bits(there[block, size:]), bits(before[block, size:]))
    others = [block for block in range(9) if block not in to.tolist()]
    assert torch.equal(bits(there)[others], bits(before)[others])


def test_blocks_of_scales_are_copied_too_and_ids_below_zero_go_nowhere() -> None:
    scales = torch.rand(5, 2, 2, 4, 3)
    there = torch.full_like(scales, torch.nan)
    ids = torch.tensor([4, -1, 1])
    scatter_blocks(gather_blocks(scales, torch.tensor([0, 2, 3])), there, ids)
    assert torch.equal(there[4], scales[0])
    assert torch.equal(there[1], scales[3])
    assert there[[0, 2, 3]].isnan().all()


def test_a_part_of_a_cache_that_is_not_aligned_is_copied() -> None:
    memory = noise(INT8, 1, 1 + 6 * 40)[0]
    cache = memory[1:].view(6, 1, 2, 4, 1, 5)
    assert torch.equal(gather_blocks(cache, torch.tensor([5, 1])), cache[[5, 1]])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stored", [INT8, FP8])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_codes_are_the_definitions_bit_for_bit(dtype: torch.dtype, stored: torch.dtype, shape: tuple[int, ...]) -> None:
    blocks = (torch.randn(3, *shape) * 10 ** torch.randn(3, *shape[:-1], 1)).to(dtype)
    blocks[1, 0, 1, 0] = 0
    codes, scales = quantise_blocks(blocks, stored)
    expected_codes, expected_scales = encode(blocks, stored)
    assert torch.equal(bits(codes), bits(expected_codes))
    assert torch.equal(scales, expected_scales)
    numbers = dequantise_blocks(codes, scales, dtype)
    assert torch.equal(numbers, decode(codes, scales, dtype))
    exact = dequantise_blocks(codes, scales, F32)
    half_step = 0.5 / LIMITS[INT8] if stored == INT8 else 2.0**-4
    largest = blocks.float().abs().amax(-1, keepdim=True)
    assert ((exact - blocks.float()).abs() <= 1.01 * half_step * largest + 1e-7).all()


def test_a_cache_of_more_than_two_to_the_31_bytes_is_addressed() -> None:
    """Only the pages that are touched exist: two blocks far apart in what is never filled."""
    apart = (1 << 30) + 65  # odd, so that words are bytes, and below 2**31 itself
    memory = torch.empty(2 * apart + 40, dtype=torch.uint8)
    cache = memory.as_strided((3, 1, 2, 4, 1, 5), (apart, 40, 20, 5, 5, 1))
    cache[0], cache[2] = 1, 2
    assert bool((gather_blocks(cache, torch.tensor([2]))[0] == 2).all())
    scatter_blocks(torch.full((1, 1, 2, 4, 1, 5), 3, dtype=torch.uint8), cache, torch.tensor([2]))
    assert bool((cache[2] == 3).all())
    assert bool((cache[0] == 1).all())


def test_no_blocks_are_no_work() -> None:
    cache, none = torch.zeros(4, 1, 2, 4, 1, 8), torch.zeros(0, dtype=torch.int64)
    staging = gather_blocks(cache, none)
    assert staging.shape == (0, 1, 2, 4, 1, 8)
    scatter_blocks(staging, cache, none)
    codes, scales = quantise_blocks(staging, INT8)
    assert dequantise_blocks(codes, scales, F16).shape == staging.shape


def test_what_does_not_fit_is_refused() -> None:
    cache, ids = torch.zeros(4, 1, 2, 4, 1, 8), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="blocks must be contiguous"):
        gather_blocks(cache.transpose(2, 3), ids)
    with pytest.raises(ValueError, match="float32"):
        gather_blocks(cache, torch.zeros(2))
    with pytest.raises(ValueError, match="not 2 blocks"):
        scatter_blocks(cache[:3], cache, ids)
    with pytest.raises(ValueError, match="float16"):
        scatter_blocks(cache[:2].half(), cache, ids)
    with pytest.raises(ValueError, match="codes of"):
        quantise_blocks(cache, torch.int32)
    with pytest.raises(ValueError, match="do not belong"):
        dequantise_blocks(cache.to(INT8), torch.zeros(4), F16)
    with pytest.raises(ValueError, match="must be contiguous"):
        dequantise_blocks(cache.to(INT8), torch.zeros(4, 1, 2, 4, 2)[..., :1], F16)
