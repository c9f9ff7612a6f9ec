"""Norm and rotation of queries and keys, and the write of keys and values into the paged cache, in one pass over each row."""

from typing import Any

import numpy as np

from kernels.cpu.cache import write_head
from kernels.cpu.launch import device, inlined, kernel, thread
from kernels.cpu.numbers import bytes_at, double_of_bits, floats_at, halves_at, load, longs_at, store


@device
def _normed_and_rotated(
    data: Any, first: Any, half: Any, weight: Any, has_weight: Any, epsilon: Any, cos: Any, angle: Any
) -> None:
    """Norm one head in place (if it has a weight) and rotate its halves against each other. `cos` holds cosines, then sines."""
    scale = np.float32(1)
    if has_weight:
        squares = np.float32(0)
        for i in range(2 * half):
            value = load(data, first + i)
            squares += value * value
        scale = np.float32(1) / np.sqrt(squares / np.float32(2 * half) + epsilon)
    for i in range(half):
        low, high = load(data, first + i), load(data, first + half + i)
        if has_weight:
            low, high = low * scale * weight[i], high * scale * weight[half + i]
        c, s = cos[angle + i], cos[angle + half + i]
        store(data, first + i, low * c - high * s)
        store(data, first + half + i, high * c + low * s)


@inlined
def _rope_store(a: Any, data: Any, cache: Any) -> None:
    """Arguments: threads, qkv, cache, scales, positions, places, angles, q weight, k weight, rows, stride, heads, kv heads,
    head_dim, key offset, value offset, epsilon. Places count numbers from the cache's beginning; below 0 is nowhere.
    """
    rows, stride, heads, kv_heads, size = a[9], a[10], a[11], a[12], a[13]
    epsilon = np.float32(double_of_bits(a[16]))
    scales, positions, places, angles = floats_at(a[3]), longs_at(a[4]), longs_at(a[5]), floats_at(a[6])
    q_weight, k_weight = floats_at(a[7]), floats_at(a[8])
    for row in range(rows * thread() // a[0], rows * (thread() + 1) // a[0]):
        first, angle = row * stride, positions[row] * size
        for head in range(heads):
            _normed_and_rotated(data, first + head * size, size // 2, q_weight, a[7] != 0, epsilon, angles, angle)
        keys = first + heads * size
        values = keys + kv_heads * size
        for head in range(kv_heads):
            _normed_and_rotated(data, keys + head * size, size // 2, k_weight, a[8] != 0, epsilon, angles, angle)
            if places[row] >= 0:
                place = places[row] + head * size
                write_head(data, keys + head * size, cache, scales, place + a[14], size)
                write_head(data, values + head * size, cache, scales, place + a[15], size)


@kernel
def rope_store_bf16(a: Any) -> None:
    """Activations and cache are bfloat16."""
    _rope_store(a, halves_at(a[1]), halves_at(a[2]))


@kernel
def rope_store_f32(a: Any) -> None:
    """Activations and cache are float32."""
    _rope_store(a, floats_at(a[1]), floats_at(a[2]))


@kernel
def rope_store_bf16_int8(a: Any) -> None:
    """Activations are bfloat16, the cache int8."""
    _rope_store(a, halves_at(a[1]), bytes_at(a[2]))


@kernel
def rope_store_f32_int8(a: Any) -> None:
    """Activations are float32, the cache int8."""
    _rope_store(a, floats_at(a[1]), bytes_at(a[2]))
