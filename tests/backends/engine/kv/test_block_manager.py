"""Tables over several groups: hits, forks, windows, and what is given back."""

import pytest

from backends.engine.kv.blocks import Reason
from backends.engine.kv.groups import KvGroup
from backends.engine.kv.manager import BlockCopy, BlockManager, Holding

_BLOCK = 4


def manager(*windows: int, blocks: int = 32) -> BlockManager:
    return BlockManager([KvGroup(window=window, blocks=blocks, block=_BLOCK) for window in windows])


def opened(blocks: BlockManager, tenant: str = "") -> Holding:
    holding = Holding()
    blocks.open(holding, tenant, "")
    return holding


def computed(blocks: BlockManager, tokens: list[int]) -> Holding:
    holding = opened(blocks)
    blocks.grow(holding, len(tokens))
    blocks.enter(holding, tokens, len(tokens))
    blocks.slide(holding, len(tokens))
    return holding


def hit(blocks: BlockManager, tokens: list[int], tenant: str = "") -> int:
    holding = opened(blocks, tenant)
    blocks.name(holding, tokens)
    return blocks.longest_hit(holding, len(tokens) // _BLOCK)


def evict(blocks: BlockManager, group: int, tokens: list[int], number: int) -> None:
    """Let one block of a cached prefix be lost in one group."""
    holding = opened(blocks)
    blocks.name(holding, tokens)
    blocks.pools[group].forget(holding.names[number + 1])


_TOKENS = list(range(100, 120))  # 5 blocks


def test_full_blocks_are_found_while_their_owner_runs_and_after() -> None:
    blocks = manager(0)
    holding = computed(blocks, _TOKENS[:18])
    assert hit(blocks, _TOKENS) == 4
    blocks.release(holding, keep=True)
    assert hit(blocks, _TOKENS) == 4
    assert hit(blocks, _TOKENS, tenant="b") == 0


def test_full_attention_needs_every_block_up_to_the_boundary() -> None:
    blocks = manager(0)
    blocks.release(computed(blocks, _TOKENS), keep=True)
    evict(blocks, 0, _TOKENS, 2)
    assert hit(blocks, _TOKENS) == 2


@pytest.mark.parametrize(("window", "needed"), [(1, 0), (2, 1), (5, 1), (6, 2), (9, 2), (10, 3)])
def test_a_window_needs_only_the_blocks_before_the_boundary(window: int, needed: int) -> None:
    blocks = manager(0, window)
    blocks.release(computed(blocks, _TOKENS), keep=True)
    for number in range(5 - needed):
        evict(blocks, 1, _TOKENS, number)
    assert hit(blocks, _TOKENS) == 5
    if needed:
        evict(blocks, 1, _TOKENS, 5 - needed)
        assert hit(blocks, _TOKENS) == 0


def test_the_boundary_of_a_hit_suits_all_groups() -> None:
    blocks = manager(0, 5)
    blocks.release(computed(blocks, _TOKENS), keep=True)
    evict(blocks, 0, _TOKENS, 4)  # full attention: at most 4 blocks
    evict(blocks, 1, _TOKENS, 3)  # the window: not 4, because the block before that boundary is lost
    assert hit(blocks, _TOKENS) == 3


def test_windows_alone_can_hit_behind_a_gap() -> None:
    blocks = manager(5)
    blocks.release(computed(blocks, _TOKENS), keep=True)
    evict(blocks, 0, _TOKENS, 1)
    assert hit(blocks, _TOKENS) == 5


def test_a_hit_shares_what_is_needed_and_leaves_out_the_rest() -> None:
    blocks = manager(0, 5)
    owner = computed(blocks, _TOKENS)
    heir = opened(blocks)
    blocks.name(heir, _TOKENS)
    blocks.take_over(heir, 5)
    assert heir.tables == [owner.tables[0], [-1, -1, -1, -1, owner.tables[1][4]]]
    blocks.check_integrity([owner, heir])


def test_blocks_that_left_the_window_are_given_back() -> None:
    blocks = manager(0, 5)
    holding = opened(blocks)
    blocks.grow(holding, 20)
    for position in range(21):
        blocks.slide(holding, position)
        oldest = max(0, position - 4)
        assert [entry < 0 for entry in holding.tables[1]] == [(i + 1) * _BLOCK <= oldest for i in range(5)]
    assert blocks.pools[1].count(Reason.RUNNING) == 1
    assert -1 not in holding.tables[0]
    blocks.check_integrity([holding])


def test_a_fork_shares_full_blocks_and_copies_the_last_one() -> None:
    blocks = manager(0, 5)
    source = computed(blocks, _TOKENS[:15])
    heir = opened(blocks)
    blocks.name(heir, _TOKENS[:15])
    assert blocks.can_fork(source, 14)
    copies = blocks.fork(heir, source, 14)
    assert heir.tables[0][:3] == source.tables[0][:3]
    assert heir.tables[1][:3] == [-1, -1, source.tables[1][2]]
    assert copies == [BlockCopy(g, source.tables[g][3], heir.tables[g][3]) for g in (0, 1)]
    assert all(copy.source != copy.target for copy in copies)
    blocks.check_integrity([source, heir])


def test_a_fork_at_the_end_of_a_block_copies_nothing() -> None:
    blocks = manager(0)
    source = computed(blocks, _TOKENS[:13])
    assert blocks.fork(opened(blocks), source, 12) == []


def test_no_fork_when_the_window_of_the_source_moved_on() -> None:
    blocks = manager(5)
    source = opened(blocks)
    blocks.grow(source, 13)
    blocks.slide(source, 12)
    assert blocks.can_fork(source, 12)
    blocks.slide(source, 13)
    assert not blocks.can_fork(source, 11)


def test_tails_are_evicted_before_beginnings() -> None:
    blocks = manager(0, blocks=6)
    blocks.release(computed(blocks, _TOKENS), keep=True)
    other = opened(blocks)
    blocks.grow(other, 3 * _BLOCK)
    assert hit(blocks, _TOKENS) == 3
    assert blocks.evictions == 2


def test_what_a_broken_sequence_computed_is_not_found_but_what_it_shared_is() -> None:
    blocks = manager(0, 5)
    sound = computed(blocks, _TOKENS[:8])
    broken = opened(blocks)
    blocks.name(broken, _TOKENS)
    blocks.take_over(broken, 2)
    blocks.grow(broken, 20)
    blocks.enter(broken, _TOKENS, 20)
    blocks.slide(broken, 20)
    assert hit(blocks, _TOKENS) == 5
    blocks.release(broken, keep=False)
    assert hit(blocks, _TOKENS) == 2
    blocks.check_integrity([sound])


def test_a_broken_sequence_is_answerable_for_its_earlier_lives() -> None:
    blocks = manager(0)
    holding = computed(blocks, _TOKENS)
    blocks.release(holding, keep=True)  # preempted
    blocks.take_over(holding, 4)
    blocks.release(holding, keep=False)
    assert hit(blocks, _TOKENS) == 0


def test_a_broken_fork_leaves_the_prompt_of_its_source() -> None:
    blocks = manager(0)
    source = computed(blocks, _TOKENS[:15])
    heir = opened(blocks)
    blocks.name(heir, _TOKENS)
    blocks.fork(heir, source, 14)
    blocks.grow(heir, 20)
    blocks.enter(heir, _TOKENS, 20)
    assert hit(blocks, _TOKENS) == 5
    blocks.release(heir, keep=False)
    assert hit(blocks, _TOKENS) == 3


def test_blocks_of_rejected_drafts_are_given_back() -> None:
    blocks = manager(0, 5)
    holding = computed(blocks, _TOKENS)
    blocks.grow(holding, 29)
    assert holding.num_blocks == 8
    blocks.trim(holding, 21)
    assert holding.num_blocks == 6
    blocks.check_integrity([holding])


def test_room_counts_what_is_free_and_what_can_be_evicted_in_the_fullest_pool() -> None:
    blocks = BlockManager([KvGroup(blocks=8, block=_BLOCK), KvGroup(window=9, blocks=4, block=_BLOCK)])
    blocks.release(computed(blocks, _TOKENS[:16]), keep=True)
    holding = opened(blocks)
    assert blocks.room(holding) == 16
    blocks.grow(holding, 5)
    assert blocks.room(holding) == 16
    assert blocks.outstanding(holding, 30) == [6, 1]


def test_idle_blocks_of_the_hit_itself_are_no_room() -> None:
    blocks = manager(0, blocks=5)
    blocks.release(computed(blocks, _TOKENS[:12]), keep=True)
    heir = opened(blocks)
    blocks.name(heir, _TOKENS)
    assert blocks.has_room(heir, 3, 20, [0])
    assert not blocks.has_room(heir, 3, 20, [1])
    assert not blocks.has_room(heir, 3, 21, [0])
