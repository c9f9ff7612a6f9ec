"""Blocks of the cache on their way to another worker: gathered into one piece, made smaller, and put back."""

import torch
import triton
import triton.language as tl

from kernels.gpu.codes import code_of, inverse_of, scale_of
from kernels.gpu.launch import launch
from kernels.gpu.tuning import tuned
from kernels.kv_codes import LIMITS

_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


@triton.jit
def copy_blocks_kernel(
    p_cache, p_staging, p_ids, cache_stride, staging_stride, words, GATHER: tl.constexpr, BLOCK: tl.constexpr
):
    """One program for each block and stretch of its words."""
    i_staged = tl.program_id(0).to(tl.int64)
    i_block = tl.load(p_ids + i_staged).to(tl.int64)
    # [BLOCK]
    o_word = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_word = o_word < tl.where(i_block >= 0, words, 0)
    p_cached = p_cache + i_block * cache_stride + o_word
    p_staged = p_staging + i_staged * staging_stride + o_word
    if GATHER:
        tl.store(p_staged, tl.load(p_cached, mask=m_word), mask=m_word)
    else:
        tl.store(p_cached, tl.load(p_staged, mask=m_word), mask=m_word)


@triton.jit
def quantise_kernel(
    p_x, p_codes, p_scales, vectors, D: tl.constexpr, LIMIT: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """One program for some vectors."""
    # [ROWS], int64
    i_vector = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o_x = tl.arange(0, BLOCK)
    # [ROWS, BLOCK]
    m_x = (i_vector < vectors)[:, None] & (o_x < D)[None, :]
    o_both = i_vector[:, None] * D + o_x[None, :]
    b_x = tl.load(p_x + o_both, mask=m_x, other=0.0).to(tl.float32)
    b_scale = scale_of(tl.max(tl.abs(b_x), 1), LIMIT)
    tl.store(p_scales + i_vector, b_scale, mask=i_vector < vectors)
    tl.store(p_codes + o_both, code_of(b_x, inverse_of(b_scale)[:, None], p_codes.dtype.element_ty), mask=m_x)


@triton.jit
def dequantise_kernel(p_codes, p_scales, p_out, vectors, D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """One program for some vectors."""
    # [ROWS], int64
    i_vector = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o_x = tl.arange(0, BLOCK)
    # [ROWS, BLOCK]
    m_x = (i_vector < vectors)[:, None] & (o_x < D)[None, :]
    o_both = i_vector[:, None] * D + o_x[None, :]
    b_codes = tl.load(p_codes + o_both, mask=m_x, other=0.0).to(tl.float32)
    b_scale = tl.load(p_scales + i_vector, mask=i_vector < vectors, other=0.0)
    tl.store(p_out + o_both, (b_codes * b_scale[:, None]).to(p_out.dtype.element_ty), mask=m_x)


def gather_blocks(cache: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Copy blocks of a cache, or of its scales, into one piece, byte for byte.

    Args:
        cache: [blocks, ...] of any type: [blocks, layers, 2, block, kv_heads, head_dim], or without the last for scales. Each
            block is contiguous; the blocks may be apart.
        ids: [n] int64 or int32. Where one is below 0, what is returned is undefined.

    Returns:
        [n, ...], contiguous.

    Raises:
        ValueError: blocks that are not contiguous, or `ids` that are no vector of integers.
    """
    staging = torch.empty(len(ids), *cache.shape[1:], dtype=cache.dtype, device=cache.device)
    _copy(cache, staging, ids, gather=True)
    return staging


def scatter_blocks(staging: torch.Tensor, cache: torch.Tensor, ids: torch.Tensor) -> None:
    """Copy blocks into their places in a cache, or in its scales, byte for byte: the way back from `gather_blocks`.

    Args:
        staging: [n, ...] of the cache's type, each block contiguous.
        cache: [blocks, ...], see `gather_blocks`.
        ids: [n] int64 or int32, all different. A block whose id is below 0 goes nowhere.

    Raises:
        ValueError: blocks that are not contiguous or of another shape or type, or `ids` that are no vector of integers.
    """
    if staging.shape[1:] != cache.shape[1:] or staging.dtype != cache.dtype or len(staging) != len(ids):
        raise ValueError(
            f"{list(staging.shape)} {staging.dtype} are not {len(ids)} blocks of a cache of {list(cache.shape)} {cache.dtype}"
        )
    _copy(cache, staging, ids, gather=False)


def _copy(cache: torch.Tensor, staging: torch.Tensor, ids: torch.Tensor, *, gather: bool) -> None:
    if ids.ndim != 1 or ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"ids must be a vector of integers, not {list(ids.shape)} {ids.dtype}")
    for tensor in (cache, staging):
        # strides of a block alone: those of an expanded or empty first dimension do not matter
        if len(tensor) and not tensor[0].is_contiguous():
            raise ValueError(f"blocks must be contiguous, not with strides {tensor.stride()}")
    if staging.numel() == 0:
        return
    cached, staged = _words(cache, staging)
    count, words = staged.shape
    config = tuned("copy_blocks", cache.device)
    grid = (count, triton.cdiv(words, config.sizes["BLOCK"]))
    strides = (cached.stride(0), staged.stride(0))
    launch(copy_blocks_kernel, grid, cached, staged, ids, *strides, words, config=config, GATHER=gather)


def _words(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Blocks as rows of the longest integers that all of them can be cut into: views."""
    sizes = [
        number * tensor.element_size()
        for tensor in tensors
        for number in (tensor[0].numel(), tensor.stride(0), tensor.storage_offset())
    ]
    word = next(word for word in _WORDS if all(size % word.itemsize == 0 for size in sizes))
    return [tensor.flatten(1).view(torch.uint8).view(word) for tensor in tensors]


def quantise_blocks(blocks: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Round keys and values to eight bits, with a scale for each token and head. Definition: `kernels.kv_codes.encode`.

    Args:
        blocks: [n, layers, 2, block, kv_heads, head_dim], contiguous; float16, bfloat16 or float32.
        dtype: int8, or float8_e4m3fn for capability 89 and above.

    Returns:
        Codes like `blocks` of `dtype`, and scales [n, layers, 2, block, kv_heads] float32.

    Raises:
        ValueError: another type, or blocks that are not contiguous.
    """
    if dtype not in LIMITS or not blocks.is_contiguous():
        raise ValueError(f"blocks with strides {blocks.stride()} cannot be made codes of {dtype}")
    codes = torch.empty_like(blocks, dtype=dtype)
    scales = torch.empty(blocks.shape[:-1], dtype=torch.float32, device=blocks.device)
    if blocks.numel():
        config = tuned("quantise", blocks.device)
        grid, vectors, sizes = _vectors(blocks, config.sizes["ROWS"])
        launch(quantise_kernel, grid, blocks, codes, scales, vectors, config=config, LIMIT=LIMITS[dtype], **sizes)
    return codes, scales


def dequantise_blocks(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Make numbers of codes: code * scale, in float32. Definition: `kernels.kv_codes.decode`.

    Args:
        codes: [n, layers, 2, block, kv_heads, head_dim] int8 or float8_e4m3fn, contiguous.
        scales: [n, layers, 2, block, kv_heads] float32, contiguous.
        dtype: float16, bfloat16 or float32.

    Returns:
        Like `codes`, of `dtype`.

    Raises:
        ValueError: shapes or types that do not go together, or tensors that are not contiguous.
    """
    if codes.dtype not in LIMITS or scales.shape != codes.shape[:-1]:
        raise ValueError(f"scales of {list(scales.shape)} do not belong to {list(codes.shape)} of {codes.dtype}")
    if not codes.is_contiguous() or not scales.is_contiguous():
        raise ValueError(f"codes and scales must be contiguous, not with strides {codes.stride()} and {scales.stride()}")
    out = torch.empty_like(codes, dtype=dtype)
    if codes.numel():
        config = tuned("quantise", codes.device)
        grid, vectors, sizes = _vectors(codes, config.sizes["ROWS"])
        launch(dequantise_kernel, grid, codes, scales, out, vectors, config=config, **sizes)
    return out


def _vectors(blocks: torch.Tensor, rows: int) -> tuple[tuple[int], int, dict[str, int]]:
    """The grid, the number of vectors, and their size as the kernels want it."""
    head_dim = blocks.shape[-1]
    vectors = blocks.numel() // head_dim
    return (triton.cdiv(vectors, rows),), vectors, {"D": head_dim, "BLOCK": triton.next_power_of_2(head_dim)}
