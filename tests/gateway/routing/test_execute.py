"""Retries within a route: whom they go to, how many there are, and that nothing is left behind."""

import asyncio

import pytest

from backends.errors import BackendError, ContextOverflow, Failed, ModelNotFound, Overloaded, Rejected, TimedOut, Unavailable
from gateway.errors import InvalidRequest
from gateway.routing.config import Member, RetryConfig, RouteConfig
from gateway.routing.execute import execute
from gateway.routing.router import Router
from tests.gateway.routing.scene import Clock, Upstreams, break_open, call, make_router, route

BROKE = Failed("It broke.")


def make(*names: str, clock: Clock | None = None, **settings: object) -> Router:
    return make_router({"chat": RouteConfig(deployments=ordered(*names))}, *names, clock=clock or Clock(), **settings)


def ordered(*names: str) -> tuple[Member, ...]:
    """Members in tiers, so that the order of attempts is known."""
    return tuple(Member(model=name, tier=tier) for tier, name in enumerate(names))


def idle(router: Router) -> bool:
    return all(deployment.outstanding == 0 for deployment in router.deployments.values())


async def test_the_first_output_is_returned_with_its_attempt() -> None:
    clock = Clock()
    router, asked = make("a", clock=clock), call()

    def slow() -> None:
        clock.now += 0.25

    output, attempt = await execute(router, asked, Upstreams(a=slow))
    assert (output.name, attempt.ttft_s, router.deployments["a"].outstanding) == ("a", 0.25, 1)
    assert (asked.trail.deployment, asked.trail.attempts, asked.trail.fallback) == ("a", 1, "")
    attempt.succeeded(0.02)
    assert idle(router)


async def test_an_error_before_the_first_output_goes_to_the_next_deployment_at_once() -> None:
    clock = Clock()
    router, asked, upstreams = make("a", "b", clock=clock), call(), Upstreams(a=BROKE)
    output, attempt = await execute(router, asked, upstreams)
    attempt.succeeded()
    assert (output.name, upstreams.asked, clock.slept) == ("b", ["a", "b"], [])
    assert (asked.trail.deployment, asked.trail.attempts) == ("b", 2)
    assert idle(router)


async def test_a_deployment_alone_is_tried_again_after_a_short_random_pause() -> None:
    clock = Clock()
    router, upstreams = make("a", clock=clock), Upstreams(a=[BROKE, None])
    _, attempt = await execute(router, call(), upstreams)
    attempt.succeeded()
    assert upstreams.asked == ["a", "a"]
    assert 0 <= clock.slept[0] <= 0.05


async def test_pauses_grow_up_to_the_longest() -> None:
    clock = Clock()
    router = make("a", clock=clock, retry=RetryConfig(attempts=10, base_delay_s=0.5, max_delay_s=2.0))
    with pytest.raises(Failed):
        await execute(router, call(), Upstreams(a=BROKE))
    for pause, longest in zip(clock.slept, [0.5, 1, 2, 2, 2, 2, 2, 2, 2], strict=True):
        assert 0 <= pause <= longest


@pytest.mark.parametrize(
    "error", [Rejected("bad"), ContextOverflow("long"), ModelNotFound("who"), InvalidRequest("ours"), ZeroDivisionError()]
)
async def test_what_another_try_cannot_help_is_raised_unchanged(error: Exception) -> None:
    router, upstreams = make("a", "b"), Upstreams(a=error)
    with pytest.raises(type(error)) as raised:
        await execute(router, call(), upstreams)
    assert raised.value is error
    assert upstreams.asked == ["a"]
    assert router.deployments["a"].breaker.error_rate(1000.0) == 0
    assert idle(router)


async def test_the_last_error_is_raised() -> None:
    last = TimedOut("The last one.")
    with pytest.raises(TimedOut) as raised:
        await execute(make("a", "b", "c"), call(), Upstreams(a=BROKE, b=last))
    assert raised.value is last


async def test_attempts_are_bounded() -> None:
    for attempts in (1, 3, 5):
        upstreams = Upstreams(a=BROKE, b=BROKE)
        with pytest.raises(Failed):
            await execute(make("a", "b", retry=RetryConfig(attempts=attempts)), call(), upstreams)
        assert len(upstreams.asked) == attempts


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (Overloaded("full"), 1),
        (Overloaded("full", retry_after_s=1.0), 1),
        (Overloaded("slow down", retry_after_s=0.3), 2),
        (Unavailable("It loads.", retry_after_s=20), 1),
        (Unavailable("unreachable"), 2),
    ],
)
async def test_a_deployment_alone_is_not_pressed_when_it_asks_for_time(error: BackendError, tries: int) -> None:
    clock = Clock()
    upstreams = Upstreams(a=error)
    with pytest.raises(type(error)):
        await execute(make("a", clock=clock), call(), upstreams)
    assert len(upstreams.asked) == tries
    if tries == 2 and error.retry_after_s is not None:
        assert clock.slept[0] >= error.retry_after_s


async def test_an_outage_is_not_answered_by_twice_the_load() -> None:
    router = make("a", "b", retry=RetryConfig(attempts=3, budget_ratio=0.1))
    upstreams = Upstreams(a=Overloaded("full"), b=Overloaded("full"))
    for _ in range(1000):
        with pytest.raises(Overloaded):
            await execute(router, call(), upstreams)
    assert 1000 < len(upstreams.asked) <= 1000 * 1.1 + 10


async def test_without_a_budget_nothing_is_retried() -> None:
    upstreams = Upstreams(a=BROKE)
    with pytest.raises(Failed):
        await execute(make("a", "b", retry=RetryConfig(budget_ratio=0)), call(), upstreams)
    assert upstreams.asked == ["a"]


async def test_the_smallest_budget_still_allows_a_retry_now_and_then() -> None:
    router, upstreams = make("a", "b", retry=RetryConfig(budget_ratio=0.002)), Upstreams(a=Overloaded("full"))
    served = 0
    for _ in range(1200):
        try:
            _, attempt = await execute(router, call(), upstreams)
        except Overloaded:
            continue
        attempt.succeeded()
        served += 1
    assert served == 3


async def test_a_deadline_is_respected() -> None:
    clock = Clock()
    router, asked, upstreams = make("a", "b", clock=clock), call(), Upstreams(a=BROKE)
    asked.deadline = clock.now
    with pytest.raises(TimedOut) as late:
        await execute(router, asked, upstreams)
    assert (late.value.code, upstreams.asked) == ("deadline_exceeded", [])

    def fail_late() -> None:
        clock.now += 5
        raise BROKE

    asked.deadline = clock.now + 5
    slow = Upstreams(a=fail_late)
    with pytest.raises(Failed):
        await execute(router, asked, slow)
    assert slow.asked == ["a"]


async def test_no_pause_goes_beyond_the_deadline() -> None:
    clock = Clock()
    asked, upstreams = call(), Upstreams(a=Overloaded("soon", retry_after_s=0.4))
    asked.deadline = clock.now + 0.2
    with pytest.raises(Overloaded):
        await execute(make("a", clock=clock), asked, upstreams)
    assert (clock.slept, upstreams.asked) == ([], ["a"])


async def test_when_every_deployment_is_broken_the_client_learns_when_to_come_back() -> None:
    clock = Clock()
    router = make("a", "b", clock=clock)
    for deployment in router.deployments.values():
        break_open(deployment, BROKE)
    soonest = min(deployment.wait_s(clock.now) for deployment in router.deployments.values())
    with pytest.raises(Unavailable, match="None of the 2 deployments of the model 'chat'") as refused:
        await execute(router, call(), Upstreams())
    assert (refused.value.code, refused.value.retry_after_s) == ("no_healthy_deployment", soonest)


async def test_when_every_deployment_asked_for_a_pause_the_client_learns_its_end() -> None:
    clock = Clock()
    router = make("a", "b", clock=clock)
    with pytest.raises(Overloaded):
        await execute(router, call(), Upstreams(a=Overloaded("x", retry_after_s=30), b=Overloaded("x", retry_after_s=20)))
    upstreams = Upstreams()
    with pytest.raises(Overloaded) as refused:
        await execute(router, call(), upstreams)
    assert (refused.value.code, refused.value.retry_after_s, upstreams.asked) == ("deployments_paused", 20, [])


async def test_an_engine_whose_queue_was_full_is_asked_again_at_once() -> None:
    router = make("a")
    upstreams = Upstreams(a=[Overloaded("The queue is full.", retry_after_s=1.0), None])
    with pytest.raises(Overloaded):
        await execute(router, call(), upstreams)
    _, attempt = await execute(router, call(), upstreams)
    attempt.succeeded()


async def test_tags_that_nobody_carries_are_the_requests_fault() -> None:
    with pytest.raises(Rejected, match="carries the tags eu") as refused:
        await execute(make("a"), call(tags=frozenset({"eu"})), Upstreams())
    assert refused.value.code == "no_matching_deployment"


async def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ModelNotFound):
        await execute(make("a"), call("nope"), Upstreams())


async def test_cancellation_while_opening_leaves_nothing() -> None:
    router = make("a")
    task = asyncio.create_task(execute(router, call(), Upstreams(a=asyncio.Event().wait)))
    await asyncio.sleep(0)
    assert router.deployments["a"].outstanding == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert idle(router)
    assert router.deployments["a"].breaker.error_rate(1000.0) == 0


async def test_a_sick_deployment_soon_gets_no_traffic_but_probes() -> None:
    clock = Clock()
    router = make_router({"chat": route("a", "b")}, "a", "b", clock=clock)
    upstreams = Upstreams(a=BROKE)
    for _ in range(300):
        _, attempt = await execute(router, call(), upstreams)
        attempt.succeeded()
    assert upstreams.asked.count("a") == 10
    clock.now += 5
    for _ in range(50):
        _, attempt = await execute(router, call(), upstreams)
        attempt.succeeded()
    assert upstreams.asked.count("a") == 11
