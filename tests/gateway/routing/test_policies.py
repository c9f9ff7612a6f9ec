"""Who is chosen: by weight, by load, by speed."""

from collections import Counter
from random import Random

import pytest

from backends.errors import Failed
from gateway.routing.policies import LeastOutstanding, LowestLatency, Weighted
from gateway.routing.seat import Seat
from tests.gateway.routing.scene import Clock, call, make_deployment

ASKED = call()


def table(clock: Clock, **weights: float) -> list[Seat]:
    return [Seat(make_deployment(clock, name), weight=weight) for name, weight in weights.items()]


def names(policy: Weighted, seats: list[Seat], count: int) -> list[str]:
    return [policy.choose(ASKED, seats).deployment.name for _ in range(count)]


def test_weights_are_kept_exactly_and_smoothly() -> None:
    seats = table(Clock(), a=3, b=1, c=0.5)
    chosen = names(Weighted(Random(1)), seats, 900)
    assert Counter(chosen) == {"a": 600, "b": 200, "c": 100}
    for start in range(890):
        assert 5 <= chosen[start : start + 9].count("a") <= 7


def test_gateways_do_not_choose_in_step() -> None:
    firsts = {tuple(names(Weighted(Random(seed)), table(Clock(), a=1, b=1, c=1), 3)) for seed in range(30)}
    assert len(firsts) > 3


def test_weights_hold_among_those_that_are_left() -> None:
    seats = table(Clock(), a=1, b=1, c=2)
    policy = Weighted(Random(1))
    names(policy, seats, 50)
    assert Counter(names(policy, seats[1:], 300)) == pytest.approx({"b": 100, "c": 200}, abs=3)
    assert Counter(names(policy, seats, 400)) == pytest.approx({"a": 100, "b": 100, "c": 200}, abs=4)


def test_load_is_spread_by_weight() -> None:
    seats = table(Clock(), a=1, b=3)
    policy = LeastOutstanding(Random(1))
    for _ in range(40):
        policy.choose(ASKED, seats).begin(ASKED)
    assert [seat.deployment.outstanding for seat in seats] == [10, 30]


def test_equals_are_chosen_by_chance() -> None:
    seats = table(Clock(), a=1, b=1, c=1)
    policy = LeastOutstanding(Random(1))
    counts = Counter(policy.choose(ASKED, seats).deployment.name for _ in range(900))
    assert min(counts.values()) > 250


def measured(clock: Clock, **ttfts: float) -> list[Seat]:
    seats = table(clock, **dict.fromkeys(ttfts, 1.0))
    for seat, ttft_s in zip(seats, ttfts.values(), strict=True):
        seat.deployment.observe(ttft_s, clock.now)
    return seats


def test_the_fastest_is_chosen_until_its_load_makes_it_slower() -> None:
    clock = Clock()
    seats = measured(clock, slow=1.0, fast=0.25)
    policy = LowestLatency(Random(1), clock)
    for _ in range(10):
        policy.choose(ASKED, seats).begin(ASKED)
    assert [seat.deployment.outstanding for seat in seats] == [2, 8]


def test_unknown_ones_are_tried_one_request_at_a_time() -> None:
    clock = Clock()
    seats = [*measured(clock, known=0.1), *table(clock, new=1.0)]
    policy = LowestLatency(Random(1), clock)
    assert policy.choose(ASKED, seats) is seats[1]
    attempt = seats[1].begin(ASKED)
    assert policy.choose(ASKED, seats) is seats[0]
    attempt.failed(Failed("broke"))
    assert policy.choose(ASKED, seats) is seats[1]


def test_one_slow_answer_does_not_leave_a_deployment_out_for_ever() -> None:
    clock = Clock()
    seats = measured(clock, usual=0.1, unlucky=9.0)
    policy = LowestLatency(Random(1), clock)
    assert policy.choose(ASKED, seats) is seats[0]
    clock.now += 31
    seats[0].deployment.observe(0.1, clock.now)
    assert policy.choose(ASKED, seats) is seats[1]


def test_nobody_known_and_all_busy_goes_by_load() -> None:
    clock = Clock()
    seats = table(clock, a=1, b=1)
    for seat in (seats[0], seats[0], seats[1]):
        seat.begin(ASKED)
    assert LowestLatency(Random(1), clock).choose(ASKED, seats) is seats[1]
