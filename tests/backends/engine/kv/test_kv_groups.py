"""What a window means for blocks, checked by walking over positions."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from backends.engine.kv.groups import KvGroup, LayerGroup, layer_groups
from backends.engine.shape import LayerShape, ModelShape, RopeShape


def shape(windows: list[int], context: int) -> ModelShape:
    layers = tuple(LayerShape(rope=RopeShape(base=10_000.0), window=window) for window in windows)
    return ModelShape(
        architecture="llama",
        vocab=10,
        hidden=8,
        intermediate=8,
        heads=1,
        kv_heads=1,
        head_dim=8,
        layers=layers,
        context=context,
        norm_eps=1e-5,
        query_scale=1.0,
    )


def test_layers_with_equal_windows_form_a_group_full_attention_first() -> None:
    groups = layer_groups(shape([512, 512, 0, 512, 0], context=4096))
    assert groups == (LayerGroup(0, (2, 4)), LayerGroup(512, (0, 1, 3)))


def test_a_window_as_long_as_the_context_is_none() -> None:
    assert layer_groups(shape([4096, 0], context=4096)) == (LayerGroup(0, (0, 1)),)


def seen_blocks(window: int, block: int, position: int) -> set[int]:
    first = max(0, position - window + 1) if window else 0
    return {p // block for p in range(first, position + 1)}


windows, blocks = st.integers(0, 20), st.integers(1, 6)


@given(windows, blocks, st.integers(0, 80))
def test_the_first_block_seen_is_the_one_of_the_oldest_key(window: int, block: int, position: int) -> None:
    group = KvGroup(window=window, blocks=1, block=block)
    assert group.first_seen(position) == min(seen_blocks(window, block, position))


@given(windows, blocks, st.integers(1, 80))
def test_needed_blocks_are_the_most_that_any_token_reads(window: int, block: int, num_tokens: int) -> None:
    group = KvGroup(window=window, blocks=1, block=block)
    most = max(len(seen_blocks(window, block, position)) for position in range(num_tokens))
    assert most <= group.needed(num_tokens) <= most + (num_tokens < window + block)
    if num_tokens >= window + 2 * block:
        assert group.needed(num_tokens) == most


@given(windows, blocks, st.integers(0, 20))
def test_blocks_before_a_boundary_are_those_that_the_next_token_reads(window: int, block: int, count: int) -> None:
    group = KvGroup(window=window, blocks=1, block=block)
    position = count * block
    assert group.before(count) == len(seen_blocks(window, block, position) - {count})


@given(windows, blocks, st.integers(1, 30))
def test_the_longest_sequence_is_the_longest_whose_tokens_all_find_their_blocks(window: int, block: int, size: int) -> None:
    group = KvGroup(window=window, blocks=size, block=block)
    fits = all(len(seen_blocks(window, block, position)) <= size for position in range(200))
    assert (group.max_tokens == sys.maxsize) == fits
    if not fits:
        assert group.max_tokens == size * block
