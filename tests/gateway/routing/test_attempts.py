"""How an attempt ends, and what its deployment learns from that."""

import pytest

from backends.errors import (
    BackendError,
    ContextOverflow,
    Failed,
    ModelNotFound,
    Overloaded,
    Rejected,
    TimedOut,
    Unavailable,
    Unsupported,
)
from gateway.routing.deployment import Deployment
from tests.gateway.routing.scene import Clock, StubBackend, call, make_deployment


def failures_until_open(deployment: Deployment, error: BackendError, most: int = 30) -> int | None:
    for count in range(1, most + 1):
        deployment.begin(call()).failed(error)
        if not deployment.breaker.allows(deployment.clock()):
            return count
    return None


def test_an_attempt_is_written_into_the_trail_and_counted_while_it_runs() -> None:
    deployment, asked = make_deployment(Clock()), call()
    first, second = deployment.begin(asked), deployment.begin(asked)
    assert (asked.trail.deployment, asked.trail.attempts, deployment.outstanding) == ("a", 2, 2)
    first.succeeded()
    second.cancelled()
    assert deployment.outstanding == 0


@pytest.mark.parametrize("first", ["succeeded", "failed", "cancelled"])
def test_an_attempt_ends_only_once(first: str) -> None:
    deployment = make_deployment(Clock())
    attempt = deployment.begin(call())
    for end in (first, "succeeded", "failed", "cancelled"):
        getattr(attempt, end)(*([Failed("broke")] if end == "failed" else []))
    attempt.first_token()
    assert deployment.outstanding == 0
    assert deployment.ttft_s is None
    assert deployment.breaker.error_rate(1000.0) == (1.0 if first == "failed" else 0.0)


@pytest.mark.parametrize(
    "error", [Failed("broke"), TimedOut("slow"), Unavailable("unreachable"), Failed("empty", code="empty")]
)
def test_faults_count(error: BackendError) -> None:
    assert failures_until_open(make_deployment(Clock()), error) == 10


@pytest.mark.parametrize(
    "error", [Rejected("bad"), ContextOverflow("long"), Unsupported("no"), ModelNotFound("who"), Overloaded("full")]
)
def test_refusals_do_not_count(error: BackendError) -> None:
    deployment = make_deployment(Clock())
    assert failures_until_open(deployment, error) is None
    assert deployment.breaker.error_rate(1000.0) == 0
    assert deployment.is_usable(1000.0)


def test_an_engine_that_says_by_its_health_that_it_loads_is_not_counted_as_broken() -> None:
    engine = make_deployment(Clock(), backend=StubBackend())
    assert failures_until_open(engine, Unavailable("It loads.")) is None
    assert failures_until_open(engine, Failed("It crashed.")) == 10


def test_a_deployment_that_asks_for_a_pause_gets_it() -> None:
    clock = Clock()
    deployment = make_deployment(clock)
    attempt = deployment.begin(call())
    attempt.failed(Overloaded("slow down", retry_after_s=20))
    deployment.begin(call()).failed(Overloaded("slow down", retry_after_s=5))
    assert not deployment.is_usable(clock.now)
    assert not deployment.is_usable(clock.now, last_resort=True)
    assert deployment.wait_s(clock.now) == 20
    attempt.failed(Overloaded("an ended attempt says nothing more", retry_after_s=50))
    assert deployment.is_usable(clock.now + 20)


def test_no_pause_is_longer_than_a_minute_and_a_short_one_gives_way_where_nobody_else_can_serve() -> None:
    clock = Clock()
    deployment = make_deployment(clock)
    deployment.begin(call()).failed(Overloaded("slow down", retry_after_s=86_400))
    assert deployment.wait_s(clock.now) == 60
    clock.now += 59
    assert not deployment.is_usable(clock.now)
    assert deployment.is_usable(clock.now, last_resort=True)


def test_the_average_time_to_the_first_token_follows_the_newest_slowly() -> None:
    clock = Clock()
    deployment = make_deployment(clock)
    for seconds in (1.0, 2.0):
        attempt = deployment.begin(call())
        clock.now += seconds
        attempt.first_token()
        clock.now += 60
        attempt.first_token()
        attempt.succeeded()
    assert deployment.ttft_s == pytest.approx(1.2)


def test_a_stream_that_breaks_after_its_first_token_counts() -> None:
    deployment = make_deployment(Clock(), consecutive_failures=3)
    for _ in range(3):
        attempt = deployment.begin(call())
        attempt.first_token()
        attempt.failed(Failed("broke in the middle"))
    assert not deployment.breaker.allows(1000.0)


def half_open(clock: Clock) -> Deployment:
    deployment = make_deployment(clock, half_open_probes=1)
    failures_until_open(deployment, Failed("broke"))
    clock.now += 5
    return deployment


def test_a_probe_has_passed_with_its_first_token_however_long_the_answer_takes() -> None:
    clock = Clock()
    deployment = half_open(clock)
    probe = deployment.begin(call())
    assert not deployment.is_usable(clock.now)
    probe.first_token()
    assert deployment.breaker.state(clock.now) == "closed"
    probe.succeeded()
    assert deployment.breaker.error_rate(clock.now) == 0


def test_a_probe_that_the_client_gave_up_makes_room_for_another() -> None:
    clock = Clock()
    deployment = half_open(clock)
    deployment.begin(call()).cancelled()
    assert deployment.is_usable(clock.now)
    deployment.begin(call()).failed(Rejected("bad"))
    assert deployment.is_usable(clock.now)
    assert deployment.breaker.state(clock.now) == "half_open"
