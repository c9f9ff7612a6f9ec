"""What the scheduler promises, one behaviour each."""

import pytest

from edge.scheduler import Limits, Scheduler
from edge.sequence import Sequence
from tests.edge.memory import RecordingMemory


def limits(**changes: int) -> Limits:
    values = {"slots": 4, "cells": 256, "batch": 64, "chunk": 16, "cache_bytes": 500} | changes
    return Limits(**values)


def sequence(tokens: list[int], request: int = 0, tenant: str = "", **more: bool) -> Sequence:
    return Sequence(request=request, index=0, tenant=tenant, tokens=list(tokens), num_prompt=len(tokens), **more)


class Driver:
    """Runs steps as the loop does, with token 1 sampled whenever a sequence is complete."""

    def __init__(self, **changes: int) -> None:
        self.memory = RecordingMemory()
        self.scheduler = Scheduler(limits(**changes), self.memory)

    def step(self) -> dict[int, int]:
        """Compute one step; returns how many tokens each request got computed."""
        items = self.scheduler.plan()
        for item in items:
            end = item.start + len(item.cells)
            self.memory.write(item.sequence.slot, item.start, item.sequence.tenant, item.sequence.tokens[item.start : end])
        self.scheduler.commit(items)
        for item in items:
            if item.sequence.num_missing == 0:
                item.sequence.tokens.append(1)
        self.scheduler.check_integrity()
        return {item.sequence.request: len(item.cells) for item in items}

    def run(self, *sequences: Sequence) -> None:
        for s in sequences:
            self.scheduler.submit(s)
        while any(s.num_generated == 0 for s in sequences):
            assert self.step()


def test_decoding_sequences_come_first_and_prompts_get_a_capped_chunk() -> None:
    driver = Driver()
    driver.run(sequence([5, 6, 7], request=1))
    driver.scheduler.submit(sequence(list(range(100, 150)), request=2))
    assert driver.step() == {1: 1, 2: 16}


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    driver = Driver()
    driver.scheduler.submit(sequence(list(range(100, 200)), request=1))
    driver.step()
    driver.scheduler.submit(sequence([7, 8, 9], request=2))
    assert driver.step()[2] == 3


def test_a_long_prompt_is_not_starved_by_a_stream_of_short_ones() -> None:
    driver = Driver(slots=4, cells=4096)
    long = sequence(list(range(1000, 1120)), request=1)
    driver.scheduler.submit(long)
    for request in range(2, 60):
        short = sequence([request * 20 + i for i in range(16)], request=request)
        driver.scheduler.submit(short)
        driver.step()
        if short.num_generated:
            driver.scheduler.finish(short, keep=False)
        if long.num_generated:
            return
    pytest.fail("the long prompt never got its first token")


def test_a_finished_sequence_serves_its_prefix_to_the_next_turn() -> None:
    driver = Driver()
    first = sequence(list(range(100, 130)))
    driver.run(first)
    driver.scheduler.finish(first)
    turn = sequence([*range(100, 130), 1, 50, 51])
    driver.run(turn)
    assert turn.cached == 30


def test_the_last_prompt_token_is_always_computed() -> None:
    driver = Driver()
    first = sequence(list(range(100, 130)))
    driver.run(first)
    driver.scheduler.finish(first)
    again = sequence(list(range(100, 130)))
    driver.run(again)
    assert again.cached == 29


def test_a_prefix_is_never_shared_between_tenants() -> None:
    driver = Driver()
    first = sequence(list(range(100, 130)), tenant="a")
    driver.run(first)
    driver.scheduler.finish(first)
    other = sequence(list(range(100, 130)), tenant="b")
    driver.run(other)
    assert other.cached == 0


def test_a_prompt_whose_logits_are_all_wanted_takes_nothing_from_the_cache() -> None:
    driver = Driver()
    first = sequence(list(range(100, 130)))
    driver.run(first)
    driver.scheduler.finish(first)
    scored = sequence(list(range(100, 130)), all_logits=True)
    driver.run(scored)
    assert scored.cached == 0


def test_simultaneous_requests_compute_a_shared_prefix_once() -> None:
    driver = Driver(cells=1024)
    shared = list(range(1000, 1100))
    requests = [sequence([*shared, 10 * i, 10 * i + 1], request=i) for i in range(4)]
    for request in requests:
        driver.scheduler.submit(request)
    computed = 0
    while any(request.num_generated == 0 for request in requests):
        computed += sum(driver.step().values())
    assert [request.cached for request in requests] == [0, 100, 100, 100]
    assert computed < 100 + 4 * 2 + 40  # the prefix, each own tail, and the decodes meanwhile


def test_a_waiting_sequence_computes_its_prefix_itself_when_the_donor_is_cancelled() -> None:
    driver = Driver(cells=1024, cache_bytes=0)
    shared = list(range(1000, 1100))
    donor, heir = sequence([*shared, 1], request=1), sequence([*shared, 2], request=2)
    driver.scheduler.submit(donor)
    driver.scheduler.submit(heir)
    driver.step()
    assert heir.slot < 0
    driver.scheduler.finish(donor, keep=False)
    while heir.num_generated == 0:
        assert driver.step()
    assert heir.cached == 0


def test_choices_of_one_request_share_its_prompt() -> None:
    driver = Driver()
    choices = [sequence(list(range(100, 140)), request=i) for i in range(3)]
    driver.run(*choices)
    assert [choice.cached for choice in choices] == [0, 39, 39]


def test_the_newest_is_preempted_when_cells_run_out_and_finishes_later() -> None:
    driver = Driver(cells=64, chunk=64, cache_bytes=0)
    old, new = sequence(list(range(100, 125)), request=1), sequence(list(range(200, 220)), request=2)
    driver.run(old, new)
    while not driver.scheduler.preemptions:
        driver.step()
    assert new.slot < 0
    assert old.slot >= 0
    generated = new.num_generated
    driver.scheduler.finish(old)
    for _ in range(5):
        driver.step()
    assert new.num_generated > generated
    assert driver.memory.slots[new.slot] == [("", token) for token in new.tokens[: new.num_past]]


def test_a_preempted_sequence_goes_on_from_its_snapshot() -> None:
    driver = Driver(cells=64, chunk=64)
    old, new = sequence(list(range(100, 125)), request=1), sequence(list(range(200, 220)), request=2)
    driver.run(old, new)
    while not driver.scheduler.preemptions:
        driver.step()
    driver.scheduler.finish(old)
    assert driver.step() == {2: 1}


def test_a_snapshot_that_cannot_be_restored_is_computed_again() -> None:
    driver = Driver()
    first = sequence(list(range(100, 130)))
    driver.run(first)
    driver.scheduler.finish(first)
    driver.memory.restores_fail = True
    again = sequence(list(range(100, 130)))
    driver.run(again)
    assert again.cached == 0


def test_a_snapshot_of_which_hardly_anything_is_shared_is_not_restored() -> None:
    driver = Driver()
    first = sequence([5, *range(100, 180)])
    driver.run(first)
    driver.scheduler.finish(first)
    other = sequence([5, *range(300, 330)])
    driver.run(other)
    assert other.cached == 0


def test_a_cancelled_sequence_that_waits_never_runs() -> None:
    driver = Driver(slots=1)
    running, waiting = sequence([5, 6], request=1), sequence([7, 8], request=2)
    driver.scheduler.submit(running)
    driver.scheduler.submit(waiting)
    driver.step()
    driver.scheduler.finish(waiting)
    driver.scheduler.finish(running)
    assert driver.step() == {}
    assert waiting.num_past == 0


def test_nobody_overtakes_a_sequence_that_waits_for_room() -> None:
    driver = Driver(cells=64, chunk=64, cache_bytes=0)
    driver.run(sequence(list(range(100, 140)), request=1))
    large, small = sequence(list(range(200, 240)), request=2), sequence([7], request=3)
    driver.scheduler.submit(large)
    driver.scheduler.submit(small)
    assert 3 not in driver.step()


def test_the_cache_is_bounded_and_forgets_what_was_used_least_recently() -> None:
    driver = Driver(cache_bytes=100)
    prompts = [[1000 * i + j for j in range(30)] for i in range(4)]
    for tokens in [*prompts[:3], prompts[0], prompts[3]]:
        s = sequence(tokens)
        driver.run(s)
        driver.scheduler.finish(s)
    assert driver.scheduler.cache.size <= 100
    kept = {snapshot.tokens[0] for snapshot in driver.scheduler.cache}
    assert kept == {0, 2000, 3000}


def test_a_longer_snapshot_replaces_the_one_it_contains() -> None:
    driver = Driver()
    first = sequence(list(range(100, 130)))
    driver.run(first)
    driver.scheduler.finish(first)
    turn = sequence([*range(100, 130), 1, 50, 51])
    driver.run(turn)
    driver.scheduler.finish(turn)
    assert [len(snapshot.tokens) for snapshot in driver.scheduler.cache] == [33]


def test_a_sliding_window_that_lost_the_prefix_is_not_reused() -> None:
    driver = Driver()
    driver.memory.window = 8
    first = sequence(list(range(100, 140)))
    driver.run(first)
    driver.scheduler.finish(first)
    branch = sequence([*range(100, 120), 7, 8])
    driver.run(branch)
    assert branch.cached == 0
    first_again = sequence([*range(100, 140), 9])
    driver.run(first_again)
    assert first_again.cached == 40


def test_a_recurrent_model_reuses_a_whole_sequence_or_nothing() -> None:
    driver = Driver()
    driver.memory.partial = False
    first = sequence(list(range(100, 130)))
    driver.run(first)
    driver.scheduler.finish(first)
    branch = sequence([*range(100, 120), 7])
    driver.run(branch)
    assert branch.cached == 0
    driver.scheduler.finish(branch, keep=False)
    turn = sequence([*range(100, 130), 1, 2])
    driver.run(turn)
    assert turn.cached == 30


def test_a_rolled_back_step_leaves_no_trace() -> None:
    driver = Driver()
    s = sequence(list(range(100, 110)))
    driver.scheduler.submit(s)
    driver.scheduler.rollback(driver.scheduler.plan())
    driver.scheduler.check_integrity()
    assert s.num_past == 0
    assert driver.step() == {0: 10}


def test_streams_are_moved_together_when_a_slot_in_the_middle_is_left() -> None:
    driver = Driver()
    driver.memory.unified = False
    sequences = [sequence([100 * i + j for j in range(6)], request=i) for i in range(3)]
    driver.run(*sequences)
    driver.scheduler.finish(sequences[0])
    driver.step()
    assert sorted(s.slot for s in driver.scheduler.running) == [0, 1]
    for s in driver.scheduler.running:
        assert driver.memory.slots[s.slot] == [("", token) for token in s.tokens[: s.num_past]]


def test_a_batch_names_its_streams_in_rising_order() -> None:
    driver = Driver()
    driver.memory.unified = False
    first, second = sequence([5, 6, 7], request=1), sequence([8, 9, 10], request=2)
    driver.run(first, second)
    driver.scheduler.finish(first, keep=False)
    driver.scheduler.submit(sequence(list(range(100, 120)), request=3))
    items = driver.scheduler.plan()
    assert [item.sequence.slot for item in items] == [0, 1]
    assert [item.sequence.request for item in items] == [3, 2]
    driver.scheduler.rollback(items)
