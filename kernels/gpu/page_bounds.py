"""Bounds of pages: the smallest and the largest of each number of a block's keys (Tang et al. 2024, Quest, section 3.3)."""

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import launch
from kernels.gpu.paged import cached_layer
from kernels.gpu.tuning import tuned


@triton.jit
def bounds_kernel(
    keys,
    strides,
    scale_strides,
    p_blocks,
    p_low,
    p_high,
    page_stride,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program for each new block and KV head."""
    i_block = tl.load(p_blocks + tl.program_id(0)).to(tl.int64)
    i_kv_head = tl.program_id(1)
    if i_block < 0:
        return
    o_token = tl.arange(0, BLOCK_T)
    o_d = tl.arange(0, BLOCK_D)
    m_k = (o_token < BLOCK)[:, None] & (o_d < HEAD_DIM)[None, :]
    o_k = i_block * strides[0] + i_kv_head * strides[2] + o_token[:, None] * strides[1] + o_d[None, :]
    # [BLOCK_T, BLOCK_D]
    b_k = tl.load(keys.k + o_k, mask=m_k, other=0.0).to(tl.float32)
    if keys.k_scales is not None:
        o_scale = i_block * scale_strides[0] + i_kv_head + o_token * scale_strides[1]
        b_k *= tl.load(keys.k_scales + o_scale, mask=o_token < BLOCK, other=0.0)[:, None]
    b_low = tl.min(tl.where(m_k, b_k, float("inf")), 0)
    b_high = tl.max(tl.where(m_k, b_k, -float("inf")), 0)
    o_out = i_block * page_stride + i_kv_head * HEAD_DIM + o_d
    tl.store(p_low + o_out, b_low.to(p_low.dtype.element_ty), mask=o_d < HEAD_DIM)
    tl.store(p_high + o_out, b_high.to(p_high.dtype.element_ty), mask=o_d < HEAD_DIM)


def write_bounds(
    cache: torch.Tensor, scales: torch.Tensor | None, layer: int, blocks: torch.Tensor, pages: torch.Tensor
) -> None:
    """Write the bounds of blocks that have been filled, for one layer.

    Args:
        cache, scales: as in `kernels.gpu.prefill_attention.prefill_attention`.
        blocks: [count] int32 or int64: numbers of blocks, all of whose keys are in the cache; -1 is padding.
        pages: [blocks, layers, 2, kv_heads, head_dim] float16, bfloat16 or float32, contiguous within a block and layer:
            smallest, then largest. Numbers of an int8 or float8_e4m3fn cache are rounded to this type, so a bound may be too
            tight by half of its last place.

    Raises:
        ValueError: a size, type or stride is not one of these.
    """
    kv_heads, head_dim = cache.shape[-2:]
    if pages.shape != (*cache.shape[:2], 2, kv_heads, head_dim) or pages.stride()[2:] != (kv_heads * head_dim, head_dim, 1):
        raise ValueError(f"bounds of a cache of {[*cache.shape]} cannot be {[*pages.shape]} of strides {pages.stride()}")
    keys = cached_layer(pages[:, 0, 0], cache, scales, layer)
    low, high = pages[:, layer].unbind(1)
    if blocks.dim() != 1 or blocks.dtype not in (torch.int32, torch.int64) or not blocks.is_contiguous():
        raise ValueError(f"blocks must be [count] int32 or int64, not {[*blocks.shape]} {blocks.dtype}")
    if len(blocks) == 0:
        return
    launch(
        bounds_kernel,
        (len(blocks), kv_heads),
        keys,
        keys.strides,
        keys.scale_strides,
        blocks,
        low,
        high,
        pages.stride(0),
        config=tuned("page_bounds", cache.device),
        HEAD_DIM=head_dim,
        BLOCK=cache.shape[3],
        BLOCK_T=triton.next_power_of_2(cache.shape[3]),
        BLOCK_D=triton.next_power_of_2(head_dim),
    )
