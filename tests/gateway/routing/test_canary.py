"""A canary climbs when it is as good as the rest, and is gone within a bounded number of requests when it is not."""

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.routing.canary import Canary
from gateway.routing.config import CanaryConfig
from gateway.routing.samples import MAX_KEPT, Reservoir, excess, p95
from tests.gateway.routing.scene import Clock, call, canary_config


def make(clock: Clock | None = None, seed: int = 1, **settings: Any) -> Canary:
    return Canary("chat", canary_config(**{"hold_s": 0.0, **settings}), clock or Clock(), Random(seed))


class Side:
    """How one deployment behaves: times spread as they do in practice, with a long tail."""

    def __init__(self, *, errors: float = 0.01, ttft: float = 1.0, itl: float = 1.0) -> None:
        self.errors, self.ttft, self.itl = errors, ttft, itl

    def serve(self, samples: Any, random: Random) -> None:
        if random.random() < self.errors:
            samples.failed()
            return
        samples.first_token(0.2 * self.ttft * random.lognormvariate(0, 0.6))
        samples.succeeded(0.02 * self.itl * random.lognormvariate(0, 0.2))


def drive(canary: Canary, trial: Side, baseline: Side, requests: int, seed: int) -> int:
    """Send requests to both sides as the percentage says, until it has ended. Returns how many the canary got."""
    random, sent = Random(seed), 0
    for _ in range(requests):
        if canary.state not in ("running", "paused"):
            break
        if random.random() * 100 < canary.percent:
            sent += 1
            trial.serve(canary.trial, random)
        else:
            baseline.serve(canary.baseline, random)
    return sent


def test_a_canary_that_is_like_the_rest_is_never_rolled_back_in_a_thousand_runs() -> None:
    states = Counter[str]()
    for seed in range(1000):
        canary = make(seed=seed, steps=(25, 50, 100), min_samples=100)
        drive(canary, Side(), Side(), 800, seed)
        states[canary.state] += 1
    assert states["rolled_back"] == 0
    # The others still wait until chance no longer makes them look slower.
    assert states["promoted"] > 400


@pytest.mark.parametrize("errors", [0.0, 0.001, 0.03, 0.2])
def test_equal_sides_are_equal_at_every_error_rate(errors: float) -> None:
    for seed in range(40):
        canary = make(seed=seed, steps=(25, 50, 100))
        drive(canary, Side(errors=errors), Side(errors=errors), 2000, seed)
        assert canary.state != "rolled_back", canary.reason


@pytest.mark.parametrize("percent", [1.0, 10.0, 50.0])
def test_ten_percent_errors_are_rolled_back_within_a_bounded_number_of_requests(percent: float) -> None:
    for seed in range(20):
        canary = make(seed=seed, steps=(percent, 100.0), hold_s=3600.0)
        sent = drive(canary, Side(errors=0.1), Side(), 100_000, seed)
        assert (canary.state, canary.percent) == ("rolled_back", 0.0)
        assert sent <= 700
        assert "failed" in canary.reason


def test_a_dead_canary_is_rolled_back_after_a_handful_of_requests() -> None:
    canary = make(steps=(10.0, 100.0))
    assert drive(canary, Side(errors=1.0), Side(), 10_000, 3) <= 20


@pytest.mark.parametrize(("side", "what"), [(Side(ttft=2.0), "first token"), (Side(itl=2.0), "between tokens")])
def test_a_canary_that_is_twice_as_slow_is_rolled_back(side: Side, what: str) -> None:
    for seed in range(20):
        canary = make(seed=seed, steps=(10.0, 100.0), hold_s=3600.0)
        sent = drive(canary, side, Side(), 50_000, seed)
        assert canary.state == "rolled_back"
        assert sent <= 400
        assert what in canary.reason


def test_a_good_past_does_not_hide_a_bad_present() -> None:
    canary = make(steps=(10.0, 100.0), hold_s=1e6)
    drive(canary, Side(), Side(), 200_000, 1)
    assert canary.state == "running"
    assert drive(canary, Side(errors=0.1), Side(), 200_000, 2) <= 3000
    assert canary.state == "rolled_back"


def test_a_better_canary_climbs() -> None:
    canary = make(steps=(5.0, 50.0, 100.0))
    drive(canary, Side(errors=0.0, ttft=0.5, itl=0.5), Side(), 10_000, 1)
    assert (canary.state, canary.percent) == ("promoted", 100.0)


def test_a_step_needs_its_time_and_its_samples() -> None:
    clock = Clock()
    canary = make(clock, steps=(10.0, 20.0, 100.0), hold_s=60.0)
    drive(canary, Side(), Side(), 10_000, 1)
    assert canary.percent == 10.0
    clock.now += 60
    drive(canary, Side(), Side(), 1000, 2)
    assert canary.percent == 20.0
    few = make(clock, steps=(10.0, 100.0), min_samples=200)
    assert drive(few, Side(), Side(), 1900, 3) < 200
    assert few.percent == 10.0


def test_nothing_is_concluded_while_there_is_nothing_to_compare_with() -> None:
    canary = make(steps=(50.0, 100.0))
    random = Random(1)
    for _ in range(500):
        Side(errors=0.3).serve(canary.trial, random)
    assert (canary.state, canary.percent) == ("running", 50.0)


def chosen(canary: Canary, sessions: int) -> set[int]:
    return {number for number in range(sessions) if canary.takes(call(session=f"s{number}"))}


def test_conversations_stay_where_they_are_while_the_percentage_grows() -> None:
    canary = make()
    before: set[int] = set()
    for percent in (1, 5, 25, 50, 100):
        canary.set_percent(percent)
        now = chosen(canary, 4000)
        assert before <= now
        assert abs(len(now) - 40 * percent) < 130
        before = now


def test_different_routes_try_their_canaries_on_different_conversations() -> None:
    one, other = make(steps=(10.0, 100.0)), Canary("other", canary_config(steps=(10.0, 100.0)), Clock(), Random(1))
    both = chosen(one, 4000) & chosen(other, 4000)
    assert len(both) < 80


def test_requests_without_a_session_go_by_their_id() -> None:
    canary = make()
    canary.set_percent(50)
    calls = [call() for _ in range(200)]
    for number, asked in enumerate(calls):
        asked.id = f"request-{number}"
    assert 60 < sum(map(canary.takes, calls)) < 140


def test_an_operator_decides() -> None:
    canary = make(steps=(5.0, 50.0, 100.0))
    canary.pause()
    drive(canary, Side(), Side(), 10_000, 1)
    assert (canary.state, canary.percent) == ("paused", 5.0)
    canary.resume()
    drive(canary, Side(), Side(), 5000, 1)
    assert canary.percent > 5.0
    canary.rollback()
    assert (canary.state, canary.percent, canary.takes(call(session="x"))) == ("rolled_back", 0.0, False)
    canary.pause()
    assert canary.state == "rolled_back"
    canary.resume()
    assert (canary.state, canary.percent, canary.reason) == ("running", 5.0, "")
    canary.promote()
    assert canary.takes(call(session="x"))
    canary.set_percent(12.5)
    assert (canary.view().state, canary.view().percent) == ("paused", 12.5)
    with pytest.raises(ValueError, match="between 0 and 100"):
        canary.set_percent(101)


def test_a_paused_canary_is_still_rolled_back() -> None:
    canary = make()
    canary.set_percent(20)
    drive(canary, Side(errors=0.3), Side(), 10_000, 1)
    assert canary.state == "rolled_back"


def test_the_view_shows_both_sides() -> None:
    canary = make(steps=(50.0, 100.0), hold_s=1e6)
    drive(canary, Side(), Side(), 1000, 1)
    view = canary.view()
    assert view.attempts + view.baseline_attempts == 1000
    assert 0.3 < view.ttft_p95_s < 0.8
    assert 0.02 < view.baseline_itl_p95_s < 0.04


def test_steps_must_rise() -> None:
    with pytest.raises(msgspec.ValidationError, match="steps must rise"):
        msgspec.convert({"deployment": "new", "steps": [5, 5, 100]}, CanaryConfig)


def test_a_reservoir_is_a_fair_sample_of_all_it_saw() -> None:
    reservoir = Reservoir(Random(1))
    for number in range(100_000):
        reservoir.add(number)
    assert len(reservoir.values) == MAX_KEPT
    assert 46_000 < sum(reservoir.values) / MAX_KEPT < 54_000


def test_the_comparison_knows_how_little_few_samples_say() -> None:
    assert excess(2 / 20, 20, 0.0, 1000) < 4.5
    assert excess(0.1, 2000, 0.02, 2000) > 4.5
    assert excess(0.5, 100, 0.5, 100) == 0
    assert p95([float(number) for number in range(1, 101)]) == 95
