"""The kernel of `kernels.cpu.prefill_attention`: online softmax over tiles of keys.

A task is a run of queries and the heads that share one key/value head; its rows are (query, head) pairs, query first. A thread
packs each tile of keys and values once and uses it for all rows of its task, a strip of six after the other. What is computed
for a row does not depend on how tasks are cut.

Source: Dao, "FlashAttention-2" (2023), section 3.1.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.launch import device, inlined, kernel, thread
from kernels.cpu.numbers import double_of_bits, floats_at, halves_at, longs_at
from kernels.cpu.packing import WORDS, pack_columns, pack_two_rows, pointer_like
from kernels.cpu.tiles import ROWS, multiply
from kernels.cpu.vectors import LANES, LONG, every, exp2, highest, load_vector, maximum, store_vector, total

KEYS = 128
"""Keys in a tile."""

_LOWEST = np.float32(-1e30)
_HIDDEN = np.float32(-np.inf)

# The arguments of the kernel, after the number of threads. Those of the first line differ from launch to launch; strides and
# sizes are in bytes.
_TAKEN, _QUERIES, _OUT, _TABLE, _START, _COUNT, _K, _V, _WINDOW, _PER_TASK = range(1, 11)
_QUERY_STRIDE, _BLOCK_STRIDE, _TOKEN_STRIDE, _HEAD_STRIDE, _BLOCK, _KV_HEADS, _GROUP, _HEAD_DIM, _SIZE = range(11, 20)
_FACTOR, _SOFTCAP, _SCALE, _SCRATCH, _SCRATCH_STRIDE, _PLACES = range(20, 26)
# Where a thread has what, in bytes from the beginning of its scratch.
_SCORES, _WEIGHTS, _SCALES, _K_ROWS, _V_ROWS, _ZEROS = range(_PLACES, _PLACES + 6)
_K_TILE, _V_TILE, _LEFT, _SUMS, _NORMS, _BEST = range(_PLACES + 6, _PLACES + 12)


@intrinsic
def _next_task(_context: Any, arguments: Any) -> Any:
    """Take a number that no other thread takes, from 0 on."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Sequence[Any]) -> Any:
        return builder.atomic_rmw("add", builder.gep(values[0], [LONG(_TAKEN)]), LONG(1), "monotonic")

    return types.int64(arguments), generate


@device
def _take_queries(a: Any, base: Any, source: Any, like: Any, head: Any, first: Any, count: Any, strips: Any) -> None:
    """Copy the queries of a task, with zeros to fill the last strip, and begin the sums of its rows."""
    left, sums = pointer_like(like, base + a[_LEFT]), floats_at(base + a[_SUMS])
    norms, best = floats_at(base + a[_NORMS]), floats_at(base + a[_BEST])
    columns, zero = a[_GROUP] * a[_HEAD_DIM], every(np.float32(0))
    for query in range(count):
        row = pointer_like(source, a[_QUERIES] + (first + query) * a[_QUERY_STRIDE])
        for column in range(0, columns, LANES):
            store_vector(left, query * columns + column, load_vector(row, head * columns + column))
    for place in range(count * columns, strips * ROWS * a[_HEAD_DIM], LANES):
        store_vector(left, place, zero)
    for place in range(0, strips * ROWS * a[_HEAD_DIM], LANES):
        store_vector(sums, place, zero)
    for row_number in range(strips * ROWS):
        store_vector(norms, row_number * LANES, zero)
    for strip in range(strips):
        store_vector(best, strip * LANES, every(_LOWEST))


@device
def _give_results(a: Any, base: Any, source: Any, head: Any, first: Any, count: Any) -> None:
    """Divide the sums by the norms and write them out."""
    sums, norms, out = floats_at(base + a[_SUMS]), floats_at(base + a[_NORMS]), pointer_like(source, a[_OUT])
    group, columns = a[_GROUP], a[_HEAD_DIM]
    for query in range(count):
        place = ((first + query) * a[_KV_HEADS] + head) * group * columns
        for row in range(query * group, query * group + group):
            share = every(np.float32(1) / total(load_vector(norms, row * LANES)))
            for column in range(0, columns, LANES):
                store_vector(out, place + column, load_vector(sums, row * columns + column) * share)
            place += columns


@device
def _locate(a: Any, base: Any, head: Any, first: Any, low: Any, high: Any) -> None:
    """Note where the keys and values of a tile are; outside of [low, high) they are zeros."""
    table, k_rows, v_rows = longs_at(a[_TABLE]), longs_at(base + a[_K_ROWS]), longs_at(base + a[_V_ROWS])
    begin = max(first, low)
    entry, place = begin // a[_BLOCK], begin % a[_BLOCK]
    for key in range(KEYS):
        k_rows[key] = v_rows[key] = base + a[_ZEROS]
        if low <= first + key < high:
            offset = table[entry] * a[_BLOCK_STRIDE] + place * a[_TOKEN_STRIDE] + head * a[_HEAD_STRIDE]
            k_rows[key], v_rows[key] = a[_K] + offset, a[_V] + offset
            place += 1
            if place == a[_BLOCK]:
                entry, place = entry + 1, 0


@device
def _pack(a: Any, base: Any, source: Any, like: Any) -> None:
    """Make the right matrices: the keys are the columns of one, the values the rows of the other."""
    row_size = a[_HEAD_DIM] * a[_SIZE]
    for key in range(0, KEYS, LANES):
        for word in range(0, row_size // 4, WORDS):
            out = base + a[_K_TILE] + 4 * (word * KEYS + key)
            pack_columns(source, like, base + a[_K_ROWS] + 8 * key, word, out, 4 * KEYS)
    for key in range(0, KEYS, 2):
        for column in range(0, a[_HEAD_DIM], LANES):
            out = base + a[_V_TILE] + key * row_size + 4 * column
            pack_two_rows(source, like, base + a[_V_ROWS] + 8 * key, column, out, row_size)


@device
def _cap(scores: Any, low: Any, high: Any, cap: Any, scale: Any) -> None:
    for row in range(ROWS):
        for column in range(row * KEYS + low, row * KEYS + high):
            scores[column] = cap * math.tanh(scores[column] * scale / cap)


@device
def _hide(scores: Any, low: Any, high: Any, first: Any, last: Any) -> None:
    """Of a row's columns in [low, high), hide those outside of [first, last)."""
    for column in range(low, min(first, high)):
        scores[column] = _HIDDEN
    for column in range(max(last, low), high):
        scores[column] = _HIDDEN


@device
def _weigh(a: Any, base: Any, like: Any, strip: Any, low: Any, high: Any) -> None:
    """Turn a strip's scores into weights, and note by how much its earlier sums have to shrink."""
    scores, scales, best = floats_at(base + a[_SCORES]), floats_at(base + a[_SCALES]), floats_at(base + a[_BEST])
    weights, norms = pointer_like(like, base + a[_WEIGHTS]), floats_at(base + a[_NORMS])
    factor = every(np.float32(double_of_bits(a[_FACTOR])))
    mine = strip * LANES
    for row in range(ROWS):
        top = every(_HIDDEN)
        for column in range(row * KEYS + low, row * KEYS + high, LANES):
            top = maximum(top, load_vector(scores, column))
        scales[row] = highest(top)
    before = load_vector(best, mine)
    now = maximum(load_vector(scales, 0) * factor, before)
    store_vector(best, mine, now)
    store_vector(scales, 0, exp2(scales, before - now))
    for row in range(ROWS):
        top = every(best[mine + row])
        norm_place = (strip * ROWS + row) * LANES
        norm = load_vector(norms, norm_place) * every(scales[row])
        for column in range(row * KEYS + low, row * KEYS + high, LANES):
            weight = exp2(weights, load_vector(scores, column) * factor - top)
            store_vector(weights, column, weight)
            norm = norm + weight
        store_vector(norms, norm_place, norm)


@device
def _product(like: Any, left: Any, right: Any, out: Any, vectors: Any, steps: Any, scales: Any) -> None:
    """Most of the machine code, and this way there only once."""
    multiply(like, left, right, out, vectors, steps, scales)


@inlined
def _attend_strip(a: Any, base: Any, like: Any, strip: Any, query: Any) -> None:
    """Let a strip see a tile. Positions count from the first key of the tile; the task's first query is at `query`."""
    group, columns, size = a[_GROUP], a[_HEAD_DIM], a[_SIZE]
    first, last = query + strip * ROWS // group, query + (strip * ROWS + ROWS - 1) // group
    reach = a[_WINDOW] - 1 if a[_WINDOW] else last
    low, end = max(first - reach, 0), min(last + 1, KEYS)
    if low < end:
        low = low // LANES * LANES
        vectors = (end - low + LANES - 1) // LANES
        high = low + vectors * LANES
        left = (base + a[_LEFT] + strip * ROWS * columns * size, columns * size)
        scores = (base + a[_SCORES] + 4 * low, 4 * KEYS)
        _product(like, left, (base + a[_K_TILE] + 4 * low, 4 * KEYS), scores, vectors, columns * size // 4, 0)
        numbers, cap = floats_at(base + a[_SCORES]), np.float32(double_of_bits(a[_SOFTCAP]))
        if cap > 0:
            _cap(numbers, low, high, cap, np.float32(double_of_bits(a[_SCALE])))
        if high > first + 1 or low < last - reach:
            for row in range(ROWS):
                seen = row * KEYS + query + (strip * ROWS + row) // group
                _hide(numbers, row * KEYS + low, row * KEYS + high, seen - reach, seen + 1)
        _weigh(a, base, like, strip, low, high)
        weights = (base + a[_WEIGHTS] + low * size, KEYS * size)
        values = (base + a[_V_TILE] + low * columns * size, 4 * columns)
        sums = (base + a[_SUMS] + 4 * strip * ROWS * columns, 4 * columns)
        _product(like, weights, values, sums, columns // LANES, ((end - low) * size + 3) // 4, base + a[_SCALES])


@inlined
def _attend(a: Any, source: Any, like: Any) -> None:
    """Do tasks until none is left. `source` points to what the cache holds, `like` to what tiles hold."""
    base = a[_SCRATCH] + thread() * a[_SCRATCH_STRIDE]
    heads, per_task = a[_KV_HEADS], a[_PER_TASK]
    runs = (a[_COUNT] + per_task - 1) // per_task
    zeros = floats_at(base + a[_ZEROS])
    for column in range(a[_HEAD_DIM]):
        zeros[column] = np.float32(0)
    task = _next_task(a)
    while task < runs * heads:
        # The last queries see the most keys: long tasks come first.
        head, first = task % heads, (runs - 1 - task // heads) * per_task
        count = min(per_task, a[_COUNT] - first)
        query, strips = a[_START] + first, (count * a[_GROUP] + ROWS - 1) // ROWS
        low = max(query - a[_WINDOW] + 1, 0) if a[_WINDOW] else 0
        _take_queries(a, base, source, like, head, first, count, strips)
        for key in range(low // KEYS * KEYS, query + count, KEYS):
            _locate(a, base, head, key, low, query + count)
            _pack(a, base, source, like)
            for strip in range(strips):
                _attend_strip(a, base, like, strip, query - key)
        _give_results(a, base, source, head, first, count)
        task = _next_task(a)


@kernel
def attend_f32(a: Any) -> None:
    """Everything is float32."""
    _attend(a, floats_at(0), floats_at(0))


@kernel
def attend_bf16(a: Any) -> None:
    """The cache and the tiles are bfloat16. Only where HAS_BF16."""
    _attend(a, halves_at(0), halves_at(0))


@kernel
def attend_bf16_widened(a: Any) -> None:
    """The cache is bfloat16, the tiles are float32."""
    _attend(a, halves_at(0), floats_at(0))
