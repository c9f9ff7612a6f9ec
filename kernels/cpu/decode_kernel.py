"""The kernel of `kernels.cpu.decode_attention`: pieces of sequences, then their sum.

A piece is up to SPLIT keys of one sequence, and the query heads that share one key/value head. Its scores are all there before
the first weight is needed, so nothing is rescaled inside a piece. Pieces begin at multiples of SPLIT, the first one where the
window begins, whatever else is in the batch and however many threads there are.
"""

import math
from typing import Any

import numpy as np

from kernels.cpu.cache import has_scales
from kernels.cpu.dots import dots
from kernels.cpu.lanes import minimum, quotient
from kernels.cpu.launch import barrier, device, inlined, kernel, thread
from kernels.cpu.numbers import bytes_at, double_of_bits, floats_at, halves_at, longs_at
from kernels.cpu.vectors import LANES, every, exp2, highest, load_vector, maximum, store_vector, total
from kernels.cpu.weighted_sums import SETS, weighted_sums

SPLIT = 128
"""Keys of a piece."""

# The arguments after the number of threads. Those of the first line differ from layer to layer. What is about places in the
# cache counts heads, from its beginning: its first keys and values of the layer, the strides of blocks and tokens.
_QKV, _KEYS, _VALUES = range(1, 4)
_OUT, _CACHE, _SCALES, _TABLES, _LENGTHS, _SCRATCH, _PARTIALS = range(4, 11)
_ROWS, _QKV_STRIDE, _TABLE_STRIDE, _BLOCK_STRIDE, _TOKEN_STRIDE, _BLOCK = range(11, 17)
_KV_HEADS, _GROUP, _SIZE, _MOST_PIECES, _WINDOW, _SCALE, _SOFTCAP = range(17, 24)

# Where a thread has what, in bytes from the beginning of its scratch: where the located heads are, counted in numbers and in
# heads, the scales of their codes, and the scores of each query head.
_OFFSETS, _PLACES, _K_SCALES, _V_SCALES, _SCORES = 0, 8 * SPLIT, 16 * SPLIT, 20 * SPLIT, 24 * SPLIT

_LOG2_E = np.float32(math.log2(math.e))
_HIDDEN = np.float32(-np.inf)


def scratch_bytes(group: int) -> int:
    """How much each thread needs."""
    return _SCORES + 4 * SPLIT * group


def partial_floats(head_dim: int) -> int:
    """How much a piece of one query head takes: sums, then the greatest score and the norm, each in all lanes of a vector."""
    return head_dim + 2 * LANES


_scratch_bytes, _partial_floats = device(scratch_bytes), device(partial_floats)


@device
def _locate(a: Any, base: Any, row: Any, begin: Any, end: Any) -> None:
    """Note where the keys begin <= t < end of a sequence are. The last stands in for those that fill the last vector."""
    table, offsets, places = longs_at(a[_TABLES]), longs_at(base + _OFFSETS), longs_at(base + _PLACES)
    t = begin
    while t < end:
        slot = t % a[_BLOCK]
        place = table[row * a[_TABLE_STRIDE] + t // a[_BLOCK]] * a[_BLOCK_STRIDE] + slot * a[_TOKEN_STRIDE]
        after = min(end, t + a[_BLOCK] - slot)
        for i in range(t - begin, after - begin):
            places[i], offsets[i] = place, place * a[_SIZE]
            place += a[_TOKEN_STRIDE]
        t = after
    for i in range(end - begin, _whole(end - begin)):
        places[i], offsets[i] = places[end - begin - 1], offsets[end - begin - 1]


@device
def _whole(count: Any) -> Any:
    """The lanes of all vectors that hold so many numbers."""
    return (count + LANES - 1) // LANES * LANES


@device
def _gather_scales(a: Any, base: Any, head: Any, count: Any) -> None:
    scales, places = floats_at(a[_SCALES]), longs_at(base + _PLACES)
    k_scales, v_scales = floats_at(base + _K_SCALES), floats_at(base + _V_SCALES)
    for i in range(_whole(count)):
        k_scales[i], v_scales[i] = scales[places[i] + a[_KEYS] + head], scales[places[i] + a[_VALUES] + head]


@device
def _scaled(dot: Any, scale: Any, cap: Any) -> Any:
    """Scores in powers of two: dot * scale, or cap * tanh(dot * scale / cap), times log2 e."""
    if cap > 0:
        power = exp2(floats_at(0), minimum(dot * every(np.float32(2) * _LOG2_E * scale / cap), every(np.float32(126))))
        return every(cap * _LOG2_E) - quotient(every(np.float32(2) * cap * _LOG2_E), every(np.float32(1)) + power)
    return dot * every(scale * _LOG2_E)


@device
def _weigh(a: Any, base: Any, qkv: Any, query: Any, cache: Any, head: Any, count: Any, scores: Any, totals: Any) -> None:
    """Compute the weights of located values for one query head, up to a factor; note the greatest score and their sum."""
    offsets, k_scales, v_scales = longs_at(base + _OFFSETS), floats_at(base + _K_SCALES), floats_at(base + _V_SCALES)
    scale, cap = np.float32(double_of_bits(a[_SCALE])), np.float32(double_of_bits(a[_SOFTCAP]))
    tops, end = every(_HIDDEN), _whole(count)
    for i in range(0, end, LANES):
        dot = dots(qkv, query, cache, (a[_KEYS] + head) * a[_SIZE], offsets, i, a[_SIZE])
        score = _scaled(dot * load_vector(k_scales, i) if has_scales(cache) else dot, scale, cap)
        tops = maximum(score, tops)  # what fills the last vector is there already
        store_vector(scores, i, score)
    for i in range(count, end):
        scores[i] = _HIDDEN
    top, norm = every(highest(tops)), every(np.float32(0))
    for i in range(0, end, LANES):
        weight = exp2(scores, load_vector(scores, i) - top)
        norm = norm + weight
        store_vector(scores, i, weight * load_vector(v_scales, i) if has_scales(cache) else weight)
    store_vector(totals, 0, top)
    store_vector(totals, LANES, every(total(norm)))


@inlined
def _attend(a: Any, base: Any, qkv: Any, cache: Any, row: Any, head: Any, count: Any, partial: Any) -> None:
    """Let a group of query heads see the located keys. Leaves [group, partial_floats] at `partial`."""
    group, size, width = a[_GROUP], a[_SIZE], _partial_floats(a[_SIZE])
    if has_scales(cache):
        _gather_scales(a, base, head, count)
    for g in range(group):
        scores, totals = floats_at(base + _SCORES + 4 * SPLIT * g), floats_at(partial + 4 * (g * width + size))
        _weigh(a, base, qkv, row * a[_QKV_STRIDE] + (head * group + g) * size, cache, head, count, scores, totals)
    for g in range(0, group, SETS):
        scores, sums = floats_at(base + _SCORES + 4 * SPLIT * g), floats_at(partial + 4 * g * width)
        first, offsets = (a[_VALUES] + head) * size, longs_at(base + _OFFSETS)
        weighted_sums(scores, cache, first, offsets, sums, (SPLIT, width), min(SETS, group - g), count, size)


@device
def _begin(a: Any, row: Any) -> Any:
    """The first key that a row sees."""
    return max(0, longs_at(a[_LENGTHS])[row] - a[_WINDOW]) if a[_WINDOW] else 0


@device
def _pieces(a: Any, row: Any) -> Any:
    return (longs_at(a[_LENGTHS])[row] + SPLIT - 1) // SPLIT - _begin(a, row) // SPLIT


@inlined
def _do_pieces(a: Any, qkv: Any, cache: Any) -> None:
    """Do this thread's part of all pieces."""
    lengths, kv_heads = longs_at(a[_LENGTHS]), a[_KV_HEADS]
    base = a[_SCRATCH] + thread() * _scratch_bytes(a[_GROUP])
    tasks, task = 0, 0
    for row in range(a[_ROWS]):
        tasks += _pieces(a, row) * kv_heads
    first, last = tasks * thread() // a[0], tasks * (thread() + 1) // a[0]
    for row in range(a[_ROWS]):
        split = _begin(a, row) // SPLIT * SPLIT
        # Heads inside pieces: they are neighbours in memory.
        for piece in range(_pieces(a, row)):
            low, high = max(first - task, 0), min(last - task, kv_heads)
            if low < high:
                begin, end = max(_begin(a, row), split), min(lengths[row], split + SPLIT)
                _locate(a, base, row, begin, end)
                for head in range(low, high):
                    number = (row * kv_heads + head) * a[_MOST_PIECES] + piece
                    partial = a[_PARTIALS] + 4 * number * a[_GROUP] * _partial_floats(a[_SIZE])
                    _attend(a, base, qkv, cache, row, head, end - begin, partial)
            split += SPLIT
            task += kv_heads


@device
def _join(partials: Any, step: Any, pieces: Any, size: Any, out: Any, target: Any) -> None:
    """Add the pieces of one query head, in their order, and write the result."""
    top, norm = load_vector(partials, size), every(np.float32(0))
    for place in range(size, size + pieces * step, step):
        top = maximum(load_vector(partials, place), top)
    for place in range(size, size + pieces * step, step):
        share = exp2(partials, load_vector(partials, place) - top)
        norm = norm + share * load_vector(partials, place + LANES)
        store_vector(partials, place, share)
    for column in range(0, size, LANES):
        sums = every(np.float32(0))
        for piece in range(0, pieces * step, step):
            sums = sums + load_vector(partials, piece + size) * load_vector(partials, piece + column)
        store_vector(out, target + column, quotient(sums, norm))


@inlined
def _decode(a: Any, qkv: Any, out: Any, cache: Any) -> None:
    _do_pieces(a, qkv, cache)
    barrier()
    heads, group, size = a[_ROWS] * a[_KV_HEADS] * a[_GROUP], a[_GROUP], a[_SIZE]
    width = _partial_floats(size)
    for head in range(heads * thread() // a[0], heads * (thread() + 1) // a[0]):
        first = (head // group * a[_MOST_PIECES] * group + head % group) * width
        pieces = _pieces(a, head // (group * a[_KV_HEADS]))
        _join(floats_at(a[_PARTIALS] + 4 * first), group * width, pieces, size, out, head * size)


@kernel
def decode_bf16(a: Any) -> None:
    """Activations and cache are bfloat16."""
    _decode(a, halves_at(a[_QKV]), halves_at(a[_OUT]), halves_at(a[_CACHE]))


@kernel
def decode_f32(a: Any) -> None:
    """Activations and cache are float32."""
    _decode(a, floats_at(a[_QKV]), floats_at(a[_OUT]), floats_at(a[_CACHE]))


@kernel
def decode_bf16_int8(a: Any) -> None:
    """Activations are bfloat16, the cache int8."""
    _decode(a, halves_at(a[_QKV]), halves_at(a[_OUT]), bytes_at(a[_CACHE]))


@kernel
def decode_f32_int8(a: Any) -> None:
    """Activations are float32, the cache int8."""
    _decode(a, floats_at(a[_QKV]), floats_at(a[_OUT]), bytes_at(a[_CACHE]))
