"""Who is served first, with a clock that only the tests move."""

import random

import pytest

from backends.engine.scheduling.urgency import TARGETS_S, PrefillCost, due
from tests.backends.engine.scheduling.driver import Driver, sequence


def test_a_more_urgent_priority_is_due_earlier() -> None:
    times = [due(10.0, priority, 0.0) for priority in sorted(TARGETS_S)]
    assert times == sorted(set(times))


def test_a_long_prefill_has_to_begin_earlier_but_never_before_it_came() -> None:
    cost = PrefillCost(base_s=0.01, per_token_s=0.001, per_pair_s=1e-7)
    assert cost.seconds(1000) == pytest.approx(1.11)
    assert due(10.0, 1, cost.seconds(1000)) == pytest.approx(10.0 + TARGETS_S[1] - 1.11)
    assert due(10.0, -2, cost.seconds(1000)) == 10.0


def test_within_a_priority_the_first_comes_first() -> None:
    driver = Driver(slots=1)
    sequences = [sequence([10 * i, 10 * i + 1], request=i) for i in range(5)]
    driver.submit(*sequences)
    served = []
    for s in sequences:
        served += driver.step()
        driver.finish(s)
    assert served == [0, 1, 2, 3, 4]


def test_an_urgent_request_passes_a_patient_one_that_came_before() -> None:
    driver = Driver(slots=1)
    driver.submit(sequence([1, 2], request=1, priority=2))
    driver.now = TARGETS_S[2] - TARGETS_S[-2] - 0.01
    driver.submit(sequence([3, 4], request=2, priority=-2))
    assert driver.step() == {2: 2}


def test_a_patient_request_is_passed_by_none_that_come_after_its_target() -> None:
    driver = Driver(slots=1)
    driver.submit(sequence([1, 2], request=1, priority=2))
    driver.now = TARGETS_S[2] + 0.01
    driver.submit(sequence([3, 4], request=2, priority=-2))
    assert driver.step() == {1: 2}


def test_no_mix_of_priorities_starves_anybody() -> None:
    """More requests come than can be served, of random priority and length; each is passed only by those within its target."""
    for seed in range(10):
        chance = random.Random(seed)
        driver = Driver(slots=2, blocks=24, budget=16, chunk=8)
        arrival, begun, alive = {}, {}, []
        for number in range(250):
            if number < 200:
                length = chance.choice([2, 5, 40])
                tokens = range(number * 100, number * 100 + length)
                one = sequence(tokens, request=number, priority=chance.choice([-2, -2, -1, 0, 1, 2]))
                driver.submit(one)
                arrival[one] = driver.now
                alive.append(one)
            driver.step()
            driver.now += chance.random() * 0.4
            for one in list(alive):
                if one.running and one not in begun:
                    begun[one] = len(begun)
                if one.num_generated >= 3:
                    driver.finish(one)
                    alive.remove(one)
        while alive:
            driver.step()
            for one in [s for s in alive if s.num_generated >= 3]:
                driver.finish(one)
                alive.remove(one)
            for one in [s for s in alive if s.running and s not in begun]:
                begun[one] = len(begun)
        for one, place in begun.items():
            late = [s for s in begun if begun[s] < place and arrival[s] > arrival[one] + TARGETS_S[one.priority]]
            assert not late, "passed by a request that came after its target"
