"""When a breaker opens, how it probes, and that nothing keeps it from closing again."""

from random import Random

import pytest

from gateway.routing.breaker import Breaker
from gateway.routing.config import BreakerConfig


def make(seed: int = 1, **settings: object) -> Breaker:
    return Breaker(BreakerConfig(**settings), Random(seed))


def play(breaker: Breaker, outcomes: str, now: float) -> None:
    """One call after the other: `+` ends well, `-` fails."""
    for outcome in outcomes:
        ticket = breaker.begin(now)
        (breaker.succeeded if outcome == "+" else breaker.failed)(ticket, now)


def opened(now: float = 100.0, **settings: object) -> Breaker:
    breaker = make(**settings)
    play(breaker, "-" * breaker._config.consecutive_failures, now)
    assert breaker.state(now) == "open"
    return breaker


def windows_that_trip(rate: float, windows: int, calls: int) -> int:
    """Fill fresh windows with calls and count those in which the breaker opened at any moment."""
    random, tripped = Random(5), 0
    for _ in range(windows):
        breaker = make()
        for index in range(calls):
            now = 100 + 50 * index / calls
            (breaker.failed if random.random() < rate else breaker.succeeded)(breaker.begin(now), now)
            if breaker.state(now) != "closed":
                tripped += 1
                break
    return tripped


def test_a_healthy_backend_trips_in_less_than_one_window_of_a_thousand() -> None:
    assert windows_that_trip(0.01, windows=4000, calls=150) <= 1


def test_a_sick_backend_trips_within_a_window() -> None:
    assert windows_that_trip(0.10, windows=500, calls=400) >= 495


def test_a_backend_at_the_limit_mostly_stays() -> None:
    assert windows_that_trip(0.05, windows=500, calls=150) < 150


def test_nothing_is_decided_on_few_calls_unless_they_fail_in_a_row() -> None:
    breaker = make(consecutive_failures=0)
    play(breaker, "-" * 99, 100.0)
    assert breaker.state(100.0) == "closed"
    play(breaker, "-", 100.0)
    assert breaker.state(100.0) == "open"
    thin = make(consecutive_failures=5)
    play(thin, "----+----", 100.0)
    assert thin.state(100.0) == "closed"
    play(thin, "-", 100.0)
    assert thin.state(100.0) == "open"


def test_failures_older_than_the_window_are_forgotten() -> None:
    breaker = make(consecutive_failures=0)
    play(breaker, "-+" * 45, 100.0)
    assert breaker.error_rate(100.0) == 0.5
    assert breaker.error_rate(159.0) == 0.5
    assert breaker.error_rate(161.0) == 0.0
    play(breaker, "+" * 99 + "-", 161.0)
    assert breaker.state(161.0) == "closed"


def test_an_open_breaker_lets_nothing_pass_until_its_rest_is_over() -> None:
    breaker = opened(open_s=5)
    rest = breaker.wait_s(100.0)
    assert 2.5 <= rest <= 5
    assert not breaker.allows(100.0 + rest - 0.01)
    assert breaker.allows(100.0 + rest)
    assert breaker.wait_s(100.0 + rest) == 0


def test_rests_double_up_to_the_longest_and_begin_anew_after_a_good_window() -> None:
    breaker = opened(open_s=5, max_open_s=60)
    now, rests = 100.0, []
    for _ in range(8):
        rests.append(breaker.wait_s(now))
        now += rests[-1]
        play(breaker, "-", now)
    for rest, longest in zip(rests, [5, 10, 20, 40, 60, 60, 60, 60], strict=True):
        assert longest / 2 <= rest <= longest
    now += breaker.wait_s(now)
    play(breaker, "+" * 10, now)
    assert breaker.state(now) == "closed"
    now += 61
    play(breaker, "-" * 10, now)
    assert breaker.wait_s(now) <= 5


def test_rests_differ_between_gateways() -> None:
    rests = set()
    for seed in range(20):
        breaker = make(seed)
        play(breaker, "-" * 10, 100.0)
        rests.add(breaker.wait_s(100.0))
    assert len(rests) == 20


def test_probes_are_few_at_a_time_and_close_it_when_they_pass() -> None:
    breaker = opened(half_open_probes=3)
    now = 106.0
    tickets = [breaker.begin(now) for _ in range(3) if breaker.allows(now)]
    assert len(tickets) == 3
    assert not breaker.allows(now)
    assert breaker.wait_s(now) > 0
    breaker.answered(tickets[0], now)
    assert breaker.allows(now)
    breaker.succeeded(tickets[1], now)
    assert breaker.state(now) == "half_open"
    breaker.answered(tickets[2], now)
    assert breaker.state(now) == "closed"
    assert breaker.error_rate(now) == 0


def test_one_bad_probe_opens_it_again() -> None:
    breaker = opened()
    now = 106.0
    play(breaker, "+++++++++", now)
    assert breaker.state(now) == "half_open"
    play(breaker, "-", now)
    assert breaker.state(now) == "open"


def test_some_bad_probes_can_be_allowed() -> None:
    breaker = opened(close_below=0.2)
    now = 106.0
    play(breaker, "+-+-++++++", now)
    assert breaker.state(now) == "closed"


def test_a_probe_that_hangs_fails_at_its_deadline() -> None:
    breaker = opened(half_open_probes=1, probe_timeout_s=30)
    hung = breaker.begin(106.0)
    assert not breaker.allows(135.9)
    assert breaker.state(136.0) == "open"
    again = 136.0 + breaker.wait_s(136.0)
    assert breaker.allows(again)
    breaker.succeeded(hung, again)  # too late to say anything
    assert breaker.state(again) == "half_open"
    play(breaker, "+", again)
    assert breaker.state(again) == "closed"


def test_a_cancelled_probe_makes_room_and_says_nothing() -> None:
    breaker = opened(half_open_probes=1)
    for _ in range(50):
        assert breaker.allows(106.0)
        breaker.cancelled(breaker.begin(106.0))
    assert breaker.state(106.0) == "half_open"


def test_calls_of_an_earlier_state_are_not_counted() -> None:
    breaker = make(half_open_probes=1)
    old = [breaker.begin(100.0) for _ in range(200)]
    play(breaker, "-" * 10, 100.0)
    for ticket in old[:100]:
        breaker.failed(ticket, 101.0)
    now = 101.0 + breaker.wait_s(101.0)
    assert breaker.allows(now)
    breaker.failed(old[100], now)
    assert breaker.state(now) == "half_open"
    play(breaker, "+", now)
    for ticket in old[101:]:
        breaker.failed(ticket, now)
    assert breaker.state(now) == "closed"


def test_recovery_noticed_elsewhere_ends_the_rest() -> None:
    breaker = opened()
    breaker.recover()
    assert breaker.state(100.0) == "half_open"
    play(breaker, "+" * 10, 100.0)
    breaker.recover()
    assert breaker.state(100.0) == "closed"


@pytest.mark.parametrize("state", ["closed", "open", "half_open"])
def test_every_state_has_its_wait(state: str) -> None:
    breaker, now = make(), 100.0
    if state != "closed":
        breaker = opened()
        now = 100.0 if state == "open" else 106.0
    assert breaker.state(now) == state
    assert (breaker.wait_s(now) == 0) == breaker.allows(now)
