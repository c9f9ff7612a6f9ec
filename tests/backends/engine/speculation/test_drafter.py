"""When guessing pays: how far it goes, when it stops and when it is tried again."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.speculation.drafter import CEILING, LONGEST_PAUSE, RETRY, SHORTEST_PAUSE, START, Drafter

REPEATING = [1, 2, 3, 4, 5] * 20


def test_a_draft_fits_the_room_and_ends_before_an_end_token() -> None:
    drafter = Drafter(frozenset({4}), most=8)
    assert drafter.propose(REPEATING, 8) == [1, 2, 3]
    assert drafter.propose(REPEATING, 2) == [1, 2]
    assert drafter.propose(REPEATING, 0) == []
    assert drafter.propose([*REPEATING, 1, 2, 3], 8) == []
    assert drafter.propose(REPEATING, 8, forced=[9, 4, 9]) == [9]


def test_drafts_grow_while_they_are_right_and_shrink_to_what_was() -> None:
    drafter = Drafter(frozenset(), most=16)
    lengths = []
    for accepted in (None, None, None, 5, 0, None):
        draft = drafter.propose(REPEATING, 100)
        lengths.append(len(draft))
        drafter.learn(len(draft), len(draft) if accepted is None else accepted)
    assert lengths == [4, 8, 16, 16, 6, 2]
    assert len(drafter.propose(REPEATING, 100)) == 4


def test_a_short_draft_for_want_of_room_does_not_shorten_the_next() -> None:
    drafter = Drafter(frozenset(), most=16)
    drafter.learn(4, 4)
    assert len(drafter.propose(REPEATING, 1)) == 1
    drafter.learn(1, 1)
    assert len(drafter.propose(REPEATING, 100)) == 8


def test_wrong_drafts_lead_to_longer_and_longer_pauses() -> None:
    drafter = Drafter(frozenset(), cost=0.2)
    pauses, pause = [], 0
    for _ in range(6000):
        draft = drafter.propose(REPEATING, 8)
        if draft:
            if pause:
                pauses.append(pause)
            pause = 0
            drafter.learn(len(draft), 0)
        else:
            pause += 1
    assert pauses == [32, 64, 128, 256, 512, 1024, 1024, 1024, 1024]


def test_good_times_do_not_pay_for_long_bad_ones() -> None:
    drafter = Drafter(frozenset(), cost=0.2)
    for _ in range(1000):
        drafter.learn(8, 8)
    wrong = 0
    while draft := drafter.propose(REPEATING, 8):
        drafter.learn(len(draft), 0)
        wrong += 1
    assert CEILING / (0.2 * 8) < wrong <= CEILING / (0.2 * 2) + 1


def test_a_sequence_that_begins_to_repeat_is_found_out_after_a_pause() -> None:
    drafter = Drafter(frozenset())
    while drafter.propose(REPEATING, 8):
        drafter.learn(4, 0)
    for _ in range(SHORTEST_PAUSE):
        if drafter.propose(REPEATING, 8):
            break
    drafted = [drafter.propose(REPEATING, 8) for _ in range(2)]
    assert all(drafted)
    for _ in range(50):
        draft = drafter.propose(REPEATING, 8)
        assert draft
        drafter.learn(len(draft), len(draft))
    assert len(draft) == 8


def test_what_is_forced_is_proposed_in_a_pause_too() -> None:
    drafter = Drafter(frozenset(), most=3)
    while drafter.propose(REPEATING, 8):
        drafter.learn(3, 0)
    assert drafter.propose(REPEATING, 8) == []
    assert drafter.propose(REPEATING, 8, forced=[5, 6, 7, 8]) == [5, 6, 7]
    assert drafter.propose(REPEATING, 2, forced=[5, 6, 7, 8]) == [5, 6]


@settings(deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 1), st.floats(0.05, 0.9), st.integers(1, 12))
def test_the_loss_is_bounded_whatever_the_text(seed: int, right: float, cost: float, most: int) -> None:
    """An adversary lets drafts be right just often enough to go on; the pauses still bound what is lost."""
    drafter, dice = Drafter(frozenset(), most, cost), random.Random(seed)
    loss, pauses, was_paused, steps = 0.0, 0, False, 3000
    for _ in range(steps):
        draft = drafter.propose(REPEATING, 20)
        pauses += bool(not draft and not was_paused)
        was_paused = not draft
        if draft:
            accepted = next((i for i in range(len(draft)) if dice.random() >= right), len(draft))
            drafter.learn(len(draft), accepted)
            loss += cost * len(draft) - accepted
        assert loss <= START + (pauses + 1) * (RETRY + cost * most) + 1e-6
    if right == 0:
        assert pauses <= 6 + steps / LONGEST_PAUSE
    assert CEILING >= START
