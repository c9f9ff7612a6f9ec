"""What the scheduler promises, one behaviour each."""

import pytest

from backends.engine.kv.blocks import Reason
from backends.engine.scheduling.limits import Limits
from backends.errors import ContextOverflow
from tests.backends.engine.scheduling.driver import Driver, sequence


def test_decoding_sequences_come_first_and_prompts_get_a_capped_chunk() -> None:
    driver = Driver()
    driver.run(sequence([5, 6, 7], request=1))
    driver.submit(sequence(range(100, 150), request=2))
    assert driver.step() == {1: 1, 2: 16}
    assert [s.request for s in driver.last.decodes] == [1]


def test_prompts_get_the_whole_budget_when_nobody_decodes() -> None:
    driver = Driver()
    driver.submit(sequence(range(100, 200), request=1))
    assert driver.step() == {1: 64}


def test_what_prompts_get_beside_streams_can_be_measured_instead() -> None:
    driver = Driver(beside=lambda num_decodes: 40 // num_decodes if num_decodes else 60)
    driver.run(sequence([5, 6, 7], request=1), sequence([8, 9, 10], request=2))
    driver.submit(sequence(range(100, 150), request=3))
    assert driver.step() == {1: 1, 2: 1, 3: 20}


def test_a_prompt_advances_even_when_nothing_is_left_for_it() -> None:
    driver = Driver(beside=lambda _: 0)
    driver.run(sequence([5, 6, 7], request=1))
    driver.submit(sequence(range(100, 150), request=2))
    assert driver.step() == {1: 1, 2: 1}


def test_chunks_end_with_blocks_unless_they_end_the_prompt() -> None:
    driver = Driver(budget=30)
    driver.submit(sequence(range(100, 150), request=1))
    assert [driver.step()[1] for _ in range(2)] == [28, 22]


def test_a_turn_finds_the_prefix_that_a_finished_one_left() -> None:
    driver = Driver()
    first = sequence(range(100, 130))
    driver.run(first)
    driver.finish(first)
    turn = sequence([*range(100, 130), 1, 50, 51])
    driver.run(turn)
    assert turn.cached == 28
    assert driver.scheduler.prefix_hit_tokens == 28


@pytest.mark.parametrize(("share_decoded", "cached"), [(False, 8), (True, 20)])
def test_what_decode_weights_computed_is_shared_only_when_allowed(share_decoded: bool, cached: int) -> None:
    driver = Driver(share_decoded=share_decoded)
    first = sequence(range(100, 110))
    driver.run(first)
    while len(first.tokens) < 22:
        driver.step()
    driver.finish(first)
    turn = sequence([*first.tokens, 50, 51])
    driver.run(turn)
    assert turn.cached == cached


def test_the_last_prompt_token_is_always_computed() -> None:
    driver = Driver()
    first = sequence(range(100, 132))
    driver.run(first)
    driver.finish(first)
    again = sequence(range(100, 132))
    driver.run(again)
    assert again.cached == 28


def test_a_prompt_is_computed_with_the_prefill_weights_to_its_last_token() -> None:
    driver = Driver()
    first = sequence(range(100, 132))
    driver.run(first, sequence([7], request=1))
    driver.submit(sequence(range(100, 133), request=2), sequence([8], request=3))
    driver.step()
    assert sorted((c.sequence.request, c.start) for c in driver.last.prefills) == [(2, 32), (3, 0)]


@pytest.mark.parametrize("other", [{"tenant": "b"}, {"adapter": "b"}])
def test_a_prefix_is_never_shared_between_tenants_or_adapters(other: dict[str, str]) -> None:
    driver = Driver()
    first, second = sequence(range(100, 130)), sequence(range(100, 130), **other)
    driver.run(first, second)
    driver.finish(first)
    third = sequence(range(100, 130), **other)
    driver.run(third)
    assert second.cached == 0
    assert third.cached > 0


def test_a_prompt_whose_logits_are_all_wanted_takes_nothing_from_the_cache() -> None:
    driver = Driver()
    first = sequence(range(100, 130))
    driver.run(first)
    driver.finish(first)
    scored = [sequence(range(100, 130), request=9, index=i, all_logits=True) for i in range(2)]
    driver.run(*scored)
    assert [s.cached for s in scored] == [0, 0]


def test_simultaneous_requests_compute_a_shared_prefix_once() -> None:
    driver = Driver(blocks=256)
    shared = list(range(1000, 1100))
    requests = [sequence([*shared, 10 * i, 10 * i + 1], request=i) for i in range(4)]
    driver.run(*requests)
    assert [s.cached for s in requests] == [0, 100, 100, 100]
    assert driver.oracle.computed <= 102 + 3 * 2 + 12  # the first whole, each own tail, and the decodes meanwhile


def test_a_waiting_sequence_computes_its_prefix_itself_when_the_donor_goes() -> None:
    driver = Driver(blocks=256)
    shared = list(range(1000, 1200))
    donor, heir = sequence([*shared, 1], request=1), sequence([*shared, 2], request=2)
    driver.submit(donor, heir)
    driver.step()
    assert not heir.running
    assert heir.donor is donor
    driver.finish(donor)
    while heir.num_generated == 0:
        assert driver.step()
    assert heir.cached == 64  # what the donor had


def test_a_sequence_that_waits_for_a_prefix_lets_others_pass() -> None:
    driver = Driver(blocks=256)
    shared = list(range(1000, 1200))
    heir, other = sequence([*shared, 2], request=2), sequence([7, 8, 9], request=3)
    driver.submit(sequence([*shared, 1], request=1), heir, other)
    assert driver.step()[3] == 3
    assert not heir.running


def test_who_is_waited_for_becomes_as_urgent_as_who_waits() -> None:
    driver = Driver(blocks=256)
    shared = list(range(1000, 1200))
    donor, rival = sequence([*shared, 1], request=1, priority=2), sequence(range(2000, 2400), request=2)
    driver.submit(donor, rival)
    driver.step()
    driver.submit(sequence([*shared, 2], request=3, priority=-2))
    assert driver.step() == {1: 64}


def test_a_patient_one_that_waits_makes_nobody_slower() -> None:
    driver = Driver(blocks=256)
    shared = list(range(1000, 1200))
    donor = sequence([*shared, 1], request=1, priority=-2)
    driver.submit(donor)
    driver.step()
    driver.submit(sequence([*shared, 2], request=2, priority=2), sequence(range(2000, 2400), request=3))
    assert driver.step() == {1: 64}


def test_choices_of_one_request_share_its_prompt_and_copy_the_block_they_write_to() -> None:
    driver = Driver(windows=(0, 6))
    choices = [sequence(range(100, 143), index=i) for i in range(3)]
    driver.submit(*choices)
    driver.step()
    assert driver.step() == {0: 1 + 2}
    assert [choice.cached for choice in choices] == [0, 42, 42]
    assert len(driver.last.copies) == 4  # two choices, two groups
    for _ in range(10):
        driver.step()


def test_sequences_of_one_request_with_different_prompts_share_only_what_is_equal() -> None:
    driver = Driver()
    prompts = [sequence([*range(100, 118), last, last], index=last) for last in (1, 2)]
    driver.run(prompts[0])
    driver.run(prompts[1])
    assert prompts[1].cached == 16
    assert driver.last.copies == []


def test_the_least_urgent_is_preempted_when_blocks_run_out_and_goes_on_later() -> None:
    driver = Driver(blocks=12)
    old, new = sequence(range(100, 116), request=1), sequence(range(200, 216), request=2)
    driver.run(old, new)
    while not driver.scheduler.preemptions:
        driver.step()
    assert [s.request for s in driver.scheduler.running] == [1]
    assert not new.running
    assert new.holding.num_blocks == 0
    driver.finish(old)
    before = new.num_generated
    while new.num_generated < before + 3:
        driver.step()
    assert new.admissions == 2
    assert new.cached == 0  # the figure for the user is that of its first life


def test_a_preempted_sequence_finds_again_what_it_computed() -> None:
    driver = Driver(blocks=12)
    old, new = sequence(range(100, 116), request=1), sequence(range(200, 216), request=2)
    driver.run(old, new)
    while not driver.scheduler.preemptions:
        driver.step()
    driver.finish(old)
    assert driver.step() == {2: len(new.tokens) - 1 - 16}
    assert driver.scheduler.prefix_hit_tokens == 0


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    driver = Driver(blocks=24)
    driver.run(sequence(range(100, 116), request=1), sequence(range(200, 248), request=2))
    driver.submit(sequence(range(300, 324), request=3, priority=-2))
    while not driver.scheduler.preemptions:
        driver.step()
    assert [s.request for s in driver.scheduler.running] == [1]
    assert driver.manager.available > 12
    driver.step()
    assert [s.request for s in driver.scheduler.running] == [3, 1]


def test_an_admitted_sequence_that_lacks_only_its_newest_token_decodes_at_once() -> None:
    driver = Driver(blocks=9, share_decoded=True)
    old, new = sequence(range(100, 112), request=1), sequence(range(200, 212), request=2)
    driver.run(old, new)
    while not driver.scheduler.preemptions:
        driver.step()
    driver.finish(old)
    assert len(new.tokens) == 17
    assert driver.step() == {2: 1}
    assert driver.last.decodes == [new]


def test_nobody_overtakes_a_sequence_that_waits_for_room() -> None:
    driver = Driver(blocks=16)
    driver.run(sequence(range(100, 140), request=1))
    driver.submit(sequence(range(200, 240), request=2), sequence([7, 8], request=3))
    assert driver.step() == {1: 1}


def test_admission_leaves_what_running_prompts_still_need() -> None:
    driver = Driver(blocks=32, budget=16)
    driver.submit(sequence(range(100, 180), request=1), sequence(range(200, 250), request=2))
    driver.step()
    assert len(driver.scheduler.running) == 1
    assert driver.scheduler.preemptions == 0


def test_drafts_are_verified_with_the_newest_token_and_what_repeats_them_counts() -> None:
    driver = Driver(propose=lambda _: [7, 8, 9], draft_below=1)
    one = sequence([5, 6, 7], request=1)
    driver.run(one)
    assert driver.step([7, 8, 2]) == {1: 4}
    assert one.tokens == [5, 6, 7, 1, 7, 8, 2]
    assert one.num_computed == 6
    assert one.is_decoding
    assert one.draft == []
    driver.step([7, 8, 9, 2])
    assert one.num_computed == 10
    driver.step([3])
    assert one.num_computed == 11


def test_blocks_of_rejected_drafts_are_given_back_after_the_step() -> None:
    driver = Driver(propose=lambda _: [7] * 9, draft_below=1)
    one = sequence([5, 6, 7], request=1)
    driver.run(one)
    driver.step([2])
    assert one.holding.num_blocks == 2
    assert driver.manager.pools[0].count(Reason.RUNNING) == 2


def test_nobody_drafts_while_many_decode() -> None:
    driver = Driver(propose=lambda _: [7, 8], draft_below=1)
    driver.run(sequence([5, 6, 7], request=1), sequence([8, 9, 10], request=2))
    assert driver.step() == {1: 1, 2: 1}


def test_drafts_leave_tokens_and_a_block_to_prompts() -> None:
    driver = Driver(propose=lambda _: [7] * 100, draft_below=1, budget=20)
    driver.run(sequence([5, 6, 7], request=1))
    driver.submit(sequence(range(100, 150), request=2))
    assert driver.step([2]) == {1: 16, 2: 4}


def test_drafts_end_where_the_context_does() -> None:
    driver = Driver(propose=lambda _: [7] * 9, draft_below=1, context=8)
    driver.run(sequence([5, 6, 7], request=1))
    assert driver.step([2]) == {1: 1 + 4}


def test_a_sequence_with_a_window_runs_far_beyond_its_pool() -> None:
    driver = Driver(windows=(6,), blocks=3, context=200)
    one = sequence(range(100, 160), request=1)
    assert driver.scheduler.max_tokens == 200
    driver.run(one)
    while len(one.tokens) < 200:
        assert driver.step() == {1: 1}
    assert driver.manager.pools[0].count(Reason.RUNNING) <= 3


def test_what_can_never_fit_is_refused_with_both_numbers() -> None:
    driver = Driver(windows=(0, 6), blocks=(16, 3), context=100)
    driver.scheduler.check_fits(63)
    with pytest.raises(ContextOverflow, match=r"holds 64 tokens.* the 64 tokens"):
        driver.scheduler.check_fits(64)
    with pytest.raises(ContextOverflow, match=r"length is 100 tokens.* has 100 tokens"):
        driver.scheduler.check_fits(100)


def test_the_longest_sequence_that_fits_is_computed_to_its_end() -> None:
    driver = Driver(blocks=16)
    one = sequence(range(100, 163), request=1)
    driver.run(one)
    assert driver.step() == {1: 1}
    assert len(one.tokens) == 65
    driver.finish(one)


def test_cancelling_works_in_every_state_and_twice() -> None:
    driver = Driver(blocks=64)
    shared = list(range(1000, 1060))
    decoding = sequence([5, 6, 7], request=1)
    driver.run(decoding)
    prefilling, heir = sequence([*shared, 1], request=2), sequence([*shared, 2], request=3)
    forked = [sequence([5, 6, 7], request=1, index=1)]
    waiting = sequence(range(2000, 2200), request=4)
    driver.submit(*forked, prefilling, heir, waiting)
    driver.step()
    states = [decoding, prefilling, heir, *forked, waiting]
    assert [s.running for s in states] == [True, True, False, True, False]
    assert heir.donor is prefilling
    for s in states:
        driver.finish(s)
        driver.finish(s)
    assert driver.step() == {}
    assert driver.manager.pools[0].count(Reason.RUNNING) == 0


def test_a_cancelled_sequence_leaves_complete_blocks_and_a_broken_one_nothing() -> None:
    for keep, cached in ((True, 32), (False, 0)):
        driver = Driver(budget=34)
        cut = sequence(range(100, 150), request=1)
        driver.submit(cut)
        driver.step()
        driver.finish(cut, keep=keep)
        after = sequence(range(100, 150), request=2)
        driver.run(after)
        assert after.cached == cached


def test_what_ends_while_it_is_computed_is_passed_over() -> None:
    driver = Driver()
    one, other = sequence(range(100, 110), request=1), sequence([5, 6, 7], request=2)
    driver.run(other)
    driver.submit(one)
    step = driver.scheduler.plan()
    assert step is not None
    driver.scheduler.finish(one)
    driver.scheduler.finish(other)
    driver.scheduler.commit(step)
    driver.scheduler.check_integrity()
    assert driver.scheduler.plan() is None


def test_a_token_after_which_none_could_be_chosen_is_computed_again() -> None:
    driver = Driver()
    one, other = sequence(range(100, 108), request=1), sequence([5, 6, 7], request=2)
    driver.run(other)
    driver.submit(one)
    step = driver.scheduler.plan()
    assert step is not None
    driver.oracle.run(step)
    driver.scheduler.commit(step)
    driver.scheduler.check_integrity()
    assert (one.num_computed, other.num_computed) == (7, 3)
    assert driver.step() == {1: 1, 2: 1}


def test_waste_is_the_empty_part_of_held_blocks() -> None:
    driver = Driver(windows=(0, 6))
    assert driver.scheduler.kv_waste() == 0
    driver.run(sequence(range(100, 109), request=1))
    # 9 of 12 places in the first group; the window holds the last two blocks of three.
    assert driver.scheduler.kv_waste() == pytest.approx((3 + 3) / (12 + 8))


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"budget": 4}, {"chunk": 0}, {"context": 1}])
def test_limits_that_could_not_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is {next(iter(wrong.values()))}"):
        Limits(**({"slots": 4, "budget": 64, "chunk": 16, "context": 100} | wrong))


def test_there_are_five_priorities() -> None:
    driver = Driver()
    with pytest.raises(ValueError, match="priority is 3, must be between -2 and 2"):
        driver.submit(sequence([1], priority=3))
    assert not list(driver.scheduler.waiting)
