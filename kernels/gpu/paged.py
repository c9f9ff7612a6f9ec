"""What the attention kernels share: where keys are in a paged cache, and how scores are capped."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
"""1 / log(2): exp(x) is exp2(LOG2_E x), and GPUs have only the latter, so scores are kept in units of log 2."""

PLAIN_TYPES = (torch.float16, torch.bfloat16, torch.float32)
"""Of queries, and of a cache that holds numbers as they are."""

CODED_TYPES = (torch.int8, torch.float8_e4m3fn)
"""Of a cache that holds codes: a number is code * scale, with a scale for each token and head."""


class CachedLayer(NamedTuple):
    """One layer of a cache.

    Args:
        k, v: [blocks, block, kv_heads, head_dim], views of the cache.
        k_scales, v_scales: [blocks, block, kv_heads] float32, views of the scales, or None.
    """

    k: torch.Tensor
    v: torch.Tensor
    k_scales: torch.Tensor | None
    v_scales: torch.Tensor | None

    @property
    def strides(self) -> tuple[int, int, int]:
        """From block to block, from token to token and from head to head: the same for keys and values."""
        block, token, head, _ = self.k.stride()
        return block, token, head

    @property
    def scale_strides(self) -> tuple[int, int]:
        """From block to block and from token to token; 0 where there are no scales."""
        if self.k_scales is None:
            return 0, 0
        block, token, _ = self.k_scales.stride()
        return block, token


def cached_layer(q: torch.Tensor, cache: torch.Tensor, scales: torch.Tensor | None, layer: int) -> CachedLayer:
    """Check a cache against the queries that read it, and pick a layer.

    Args:
        q: [rows, heads, head_dim] float16, bfloat16 or float32.
        cache: [blocks, layers, 2, block, kv_heads, head_dim] of q's type, int8 or float8_e4m3fn; heads must be contiguous.
        scales: [blocks, layers, 2, block, kv_heads] float32 for int8 and float8_e4m3fn, else None; tokens must be contiguous.

    Raises:
        ValueError: a size, type or stride is not one of these; heads cannot share KV heads; no such layer.
    """
    if q.dim() != 3 or cache.dim() != 6 or cache.shape[2] != 2:
        raise ValueError(f"queries must have 3 dimensions and a cache 6, the third of 2, not {[*q.shape]} and {[*cache.shape]}")
    block, kv_heads, head_dim = cache.shape[3:]
    if head_dim != q.shape[2] or head_dim % 16 or not 16 <= head_dim <= 256:
        raise ValueError(
            f"heads must be 16 to 256 numbers in steps of 16, not {q.shape[2]} of queries, {head_dim} of the cache"
        )
    if q.shape[1] % kv_heads:
        raise ValueError(f"{q.shape[1]} heads cannot share {kv_heads} key/value heads")
    if block % 16 or not 16 <= block <= 128:
        raise ValueError(f"blocks must be 16 to 128 tokens in steps of 16, not {block}")
    if not 0 <= layer < cache.shape[1]:
        raise ValueError(f"layer {layer} is not one of {cache.shape[1]}")
    if q.dtype not in PLAIN_TYPES or cache.dtype not in (q.dtype, *CODED_TYPES):
        raise ValueError(f"queries of {q.dtype} cannot read a cache of {cache.dtype}")
    if q.stride()[1:] != (head_dim, 1) or cache.stride(5) != 1:
        raise ValueError(f"heads must be contiguous, not of strides {q.stride()} and {cache.stride()}")
    if (scales is not None) != (cache.dtype in CODED_TYPES):
        raise ValueError(f"a cache of {cache.dtype} comes {'without' if scales is not None else 'with'} scales")
    k, v = cache[:, layer].unbind(1)
    if scales is None:
        return CachedLayer(k, v, None, None)
    if scales.shape != cache.shape[:5] or scales.dtype != torch.float32 or scales.stride(4) != 1:
        raise ValueError(
            f"scales must be contiguous {[*cache.shape[:5]]} float32, not {[*scales.shape]} {scales.dtype} "
            f"of strides {scales.stride()}"
        )
    return CachedLayer(k, v, *scales[:, layer].unbind(1))


@triton.jit
def located(p_table, o_key, m_key, BLOCK: tl.constexpr):
    """Blocks of keys at the positions `o_key`, and their places there, both int64: products with strides may exceed 2^31."""
    b_block = tl.load(p_table + o_key // BLOCK, mask=m_key, other=0).to(tl.int64)
    return b_block, (o_key % BLOCK).to(tl.int64)


@triton.jit
def tanh(b_x):
    """Hyperbolic tangent of float32, to a few times 1e-7."""
    # exp of a number that is never positive does not overflow
    b_e = tl.exp2(tl.abs(b_x) * (-2.0 * LOG2_E))
    b_t = (1.0 - b_e) / (1.0 + b_e)
    return tl.where(b_x < 0, -b_t, b_t)


@triton.jit
def at_least_finite(b_max):
    """The largest score so far as what is subtracted from scores: 0 where no key was seen, as -inf - -inf is not a number."""
    return tl.where(b_max == -float("inf"), 0.0, b_max)
