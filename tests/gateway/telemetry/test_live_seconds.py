"""The last five minutes, second by second."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.live import SECONDS, Live, Steps


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(clock) -> Live:
    return Live(clock, wall=lambda: 5000.0 + clock.now - 1000.0)


def test_events_are_in_the_second_in_which_they_came(live, clock):
    live.first_token(clock.now, 0.2, 1)
    clock.now = 1001.5
    live.later_tokens(clock.now, 0.05, 3)
    live.ended(clock.now, failed=False)
    clock.now = 1003.25
    live.ended(clock.now, failed=True)
    live.more_tokens(40)
    clock.now = 1004.25
    seen = live.snapshot()
    assert seen["until"] == 5004.0
    assert seen["requests"] == [0, 1, 0, 1]
    assert seen["errors"] == [0, 0, 0, 1]
    assert seen["tokens"] == [1, 3, 0, 40]
    assert seen["ttft_p50_s"] == [pytest.approx(0.2, rel=0.05), None, None, None]
    assert seen["itl_p95_s"] == [None, pytest.approx(0.05, rel=0.05), None, None]


def test_second_that_runs_is_not_shown(live, clock):
    live.ended(clock.now, failed=False)
    assert live.snapshot()["requests"] == []
    clock.now += 0.999
    assert live.snapshot()["requests"] == []
    clock.now += 0.001
    assert live.snapshot()["requests"] == [1]


def test_no_more_than_five_minutes_are_kept(live, clock):
    for number in range(1000):
        clock.now = 1000.0 + number
        for _ in range(number % 7):
            live.ended(clock.now, failed=False)
    clock.now += 1
    assert live.snapshot()["requests"] == [number % 7 for number in range(1000 - SECONDS, 1000)]


def test_long_silence_leaves_nothing_old(live, clock):
    live.ended(clock.now, failed=True)
    clock.now += 1e7
    seen = live.snapshot()
    assert seen["requests"] == [0] * SECONDS
    assert seen["errors"] == [0] * SECONDS


def test_queue_depth_is_asked_once_a_second(live, clock):
    asked = []
    live.queue_depth = lambda: asked.append(clock.now) or 10 + len(asked)
    for tenth in range(1, 50):
        clock.now = 1000 + tenth / 10
        live.ended(clock.now, failed=False)
    assert asked == [1001.0, 1002.0, 1003.0, 1004.0]
    clock.now = 1007.0
    assert live.snapshot()["queue_depth"] == [11, 12, 13, 14, 15, 15, 15]


def test_percentiles_of_a_second_stay_as_they_were(live, clock):
    for milliseconds in range(1, 101):
        live.first_token(clock.now, milliseconds / 1000, 1)
    clock.now += 1
    first = live.snapshot()
    assert first["ttft_p50_s"] == [pytest.approx(0.050, rel=0.05)]
    assert first["ttft_p95_s"] == [pytest.approx(0.095, rel=0.05)]
    clock.now += 1
    assert live.snapshot()["ttft_p95_s"][0] == first["ttft_p95_s"][0]


@given(st.lists(st.floats(2e-4, 1e3), min_size=1), st.floats(0.01, 1))
def test_quantiles_are_within_five_percent(values, share):
    steps = Steps()
    for value in values:
        steps.add(value)
    exact = sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]
    assert steps.quantiles(share)[0] == pytest.approx(exact, rel=0.05)


@given(st.lists(st.floats(-1, 1e12)))
def test_memory_of_a_second_is_bounded(values):
    steps = Steps()
    for value in values:
        steps.add(value)
    assert set(steps.counts) <= set(range(193))
    assert sum(steps.counts.values()) == len(values)
