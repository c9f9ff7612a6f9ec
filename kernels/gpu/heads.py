"""What happens to heads before attention, in one launch: norms, rotation, and the way into the cache."""

import torch
import triton
import triton.language as tl

from kernels.gpu.codes import code_of, inverse_of, scale_of
from kernels.gpu.launch import launch
from kernels.gpu.tuning import tuned
from kernels.kv_codes import LIMITS


@triton.jit
def _normed(b_x, b_root, p_weight, o_x, m_x, m_head):
    """Norm the heads of `m_head`, leave the others."""
    b_weight = tl.load(p_weight + o_x, mask=m_x, other=0.0)
    return tl.where(m_head[:, None], b_x * b_root[:, None] * b_weight[None, :], b_x)


@triton.jit
def prepare_heads_kernel(
    p_qkv,
    p_positions,
    p_angles,
    p_slots,
    p_q_norm,
    p_k_norm,
    p_cache,
    p_scales,
    row_stride,
    angle_stride,
    block_stride,
    kind_stride,
    place_stride,
    head_stride,
    scale_block_stride,
    scale_kind_stride,
    scale_place_stride,
    scale_head_stride,
    epsilon,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    PAGE: tl.constexpr,
    LIMIT: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program for each row and some of its heads, of whatever kind: what differs between kinds are masks."""
    i_row = tl.program_id(0).to(tl.int64)
    # [TILE]: queries, then keys, then values
    i_head = tl.program_id(1) * TILE + tl.arange(0, TILE)
    m_head = i_head < HEADS + 2 * KV_HEADS
    m_query = i_head < HEADS
    m_value = i_head >= HEADS + KV_HEADS
    # [BLOCK]: a place in the lower half of a head; its partner is HALF further on
    o_half = tl.arange(0, BLOCK)
    m_half = o_half < HALF
    # [TILE, BLOCK]
    p_low = p_qkv + i_row * row_stride + i_head[:, None] * (2 * HALF) + o_half[None, :]
    m_both = m_head[:, None] & m_half[None, :]
    b_low = tl.load(p_low, mask=m_both, other=0.0).to(tl.float32)
    b_high = tl.load(p_low + HALF, mask=m_both, other=0.0).to(tl.float32)

    if p_q_norm is not None or p_k_norm is not None:
        b_root = tl.rsqrt(tl.sum(b_low * b_low + b_high * b_high, 1) / (2 * HALF) + epsilon)
        if p_q_norm is not None:
            b_low = _normed(b_low, b_root, p_q_norm, o_half, m_half, m_query)
            b_high = _normed(b_high, b_root, p_q_norm + HALF, o_half, m_half, m_query)
        if p_k_norm is not None:
            m_key = (i_head >= HEADS) & (i_head < HEADS + KV_HEADS)
            b_low = _normed(b_low, b_root, p_k_norm, o_half, m_half, m_key)
            b_high = _normed(b_high, b_root, p_k_norm + HALF, o_half, m_half, m_key)

    p_cos = p_angles + tl.load(p_positions + i_row) * angle_stride + o_half
    b_cos = tl.load(p_cos, mask=m_half, other=0.0)[None, :]
    b_sin = tl.load(p_cos + HALF, mask=m_half, other=0.0)[None, :]
    b_turned_low = tl.where(m_value[:, None], b_low, b_low * b_cos - b_high * b_sin)
    b_turned_high = tl.where(m_value[:, None], b_high, b_high * b_cos + b_low * b_sin)

    TYPE: tl.constexpr = p_qkv.dtype.element_ty
    b_low = b_turned_low.to(TYPE)
    b_high = b_turned_high.to(TYPE)
    tl.store(p_low, b_low, mask=m_both & m_query[:, None])
    tl.store(p_low + HALF, b_high, mask=m_both & m_query[:, None])

    i_slot = tl.load(p_slots + i_row)
    m_stored = (i_head >= HEADS) & (i_head < tl.where(i_slot >= 0, HEADS + 2 * KV_HEADS, 0))
    i_block = i_slot // PAGE
    i_place = i_slot % PAGE
    i_kind = m_value.to(tl.int32)
    i_kv_head = i_head - HEADS - i_kind * KV_HEADS
    # [TILE], int64
    o_vector = i_block * block_stride + i_place * place_stride + i_kind * kind_stride + i_kv_head * head_stride
    p_stored = p_cache + o_vector[:, None] + o_half[None, :]
    m_numbers = m_stored[:, None] & m_half[None, :]
    STORED: tl.constexpr = p_cache.dtype.element_ty
    if p_scales is None:
        tl.store(p_stored, b_low.to(STORED), mask=m_numbers)
        tl.store(p_stored + HALF, b_high.to(STORED), mask=m_numbers)
    else:
        b_low = b_low.to(tl.float32)
        b_high = b_high.to(tl.float32)
        b_scale = scale_of(tl.max(tl.maximum(tl.abs(b_low), tl.abs(b_high)), 1), LIMIT)
        b_inverse = inverse_of(b_scale)[:, None]
        o_scale = i_block * scale_block_stride + i_place * scale_place_stride
        o_scale += i_kind * scale_kind_stride + i_kv_head * scale_head_stride
        tl.store(p_scales + o_scale, b_scale, mask=m_stored)
        tl.store(p_stored, code_of(b_low, b_inverse, STORED), mask=m_numbers)
        tl.store(p_stored + HALF, code_of(b_high, b_inverse, STORED), mask=m_numbers)


def slots_of(tables: torch.Tensor, positions: torch.Tensor, block: int, which: torch.Tensor | None = None) -> torch.Tensor:
    """Find the place of each token in the cache; needed once for a batch and pool, not once for a layer.

    Args:
        tables: [rows, entries] int64: the block of each stretch of `block` tokens; below 0 where nothing is to be written.
        positions: [rows] int64; below 0 for a row that only fills up a batch.
        which: [rows] int64: the row of `tables` that each token uses; None if each has its own.

    Returns:
        [rows] int64: block number * block + offset within the block; below 0 where the position or the entry is.
    """
    entries, offsets = (positions // block).clamp_min(0), positions % block
    blocks = tables.gather(1, entries[:, None])[:, 0] if which is None else tables[which, entries]
    slots: torch.Tensor = torch.where(positions < 0, -1, blocks * block + offsets)
    return slots


def prepare_heads(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    angles: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    scales: torch.Tensor | None,
    layer: int,
    *,
    epsilon: float,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
) -> torch.Tensor:
    """Norm and rotate queries and keys, and write keys and values into the cache.

    Norms: Zhang and Sennrich, 2019, equation 4, over each head. Rotation: Su et al., 2021, equation 34, halves against each
    other. Queries and keys are rounded to the type of `qkv` after the rotation; what is quantised, is so from there.
    Definition: `kernels.reference`.

    Args:
        qkv: [rows, (heads + 2 * kv_heads) * head_dim] float16, bfloat16 or float32; the rows may be apart. Its queries are
            overwritten.
        positions: [rows] int64.
        angles: [positions, head_dim] float32: cosines of the half head's angles, then their sines.
        slots: [rows] int64, see `slots_of`; no two that are not below 0 are equal. A row with one below 0 (which fills up a
            batch) leaves the cache as it is.
        cache: [blocks, layers, 2, block, kv_heads, head_dim] of any floating type, or int8 or float8_e4m3fn with scales.
        scales: [blocks, layers, 2, block, kv_heads] float32, or None.
        layer: which of the cache's.
        epsilon: added to the mean squares.
        q_norm, k_norm: [head_dim] float32, or None.

    Returns:
        The queries, [rows, heads, head_dim]: a view of `qkv`.

    Raises:
        ValueError: shapes, types or strides that do not go together.
    """
    block, kv_heads, head_dim = cache.shape[3:]
    rows, columns = qkv.shape
    heads = columns // head_dim - 2 * kv_heads
    if head_dim % 2 or heads <= 0 or columns % head_dim:
        raise ValueError(f"rows of {columns} are not queries, and keys and values of {kv_heads} heads of {head_dim}")
    if (scales is None) == (cache.dtype in LIMITS):
        raise ValueError(f"a cache of {cache.dtype} {'needs' if scales is None else 'has no'} scales")
    if scales is not None and scales.shape != cache.shape[:-1]:
        raise ValueError(f"scales of {list(scales.shape)} do not belong to a cache of {list(cache.shape)}")
    if qkv.stride(1) != 1 or cache.stride(5) != 1:
        raise ValueError(f"heads must be dense, not with strides {qkv.stride(1)} and {cache.stride(5)}")
    if positions.shape != (rows,) or slots.shape != (rows,):
        raise ValueError(f"{rows} rows have {list(positions.shape)} positions and {list(slots.shape)} slots")
    if angles.shape[1] != head_dim or angles.stride(1) != 1:
        raise ValueError(f"angles must be dense rows of {head_dim}, not {list(angles.shape)} with strides {angles.stride()}")
    for norm in (q_norm, k_norm):
        if norm is not None and norm.shape != (head_dim,):
            raise ValueError(f"norms must be of {head_dim} numbers, not {list(norm.shape)}")
    if not 0 <= layer < cache.shape[1]:
        raise ValueError(f"there is no layer {layer} among {cache.shape[1]}")
    queries: torch.Tensor = qkv[:, : heads * head_dim].unflatten(1, (heads, head_dim))
    if rows == 0:
        return queries
    # The layer is in the pointers: one compiled kernel serves all.
    stored, its_scales = cache[:, layer], None if scales is None else scales[:, layer]
    config = tuned("heads", qkv.device, head_dim=head_dim)
    launch(
        prepare_heads_kernel,
        (rows, triton.cdiv(heads + 2 * kv_heads, config.sizes["TILE"])),
        qkv,
        positions,
        angles,
        slots,
        q_norm,
        k_norm,
        stored,
        its_scales,
        qkv.stride(0),
        angles.stride(0),
        *stored.stride()[:4],
        *((0, 0, 0, 0) if its_scales is None else its_scales.stride()),
        epsilon,
        config=config,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HALF=head_dim // 2,
        PAGE=block,
        LIMIT=LIMITS.get(cache.dtype, 0.0),
        BLOCK=triton.next_power_of_2(head_dim // 2),
    )
    return queries
