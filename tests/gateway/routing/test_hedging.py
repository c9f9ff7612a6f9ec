"""A second attempt starts when the first takes long; one answer is used and nothing of the other is left."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from backends.errors import Failed, Rejected
from gateway.errors import InvalidRequest
from gateway.routing.config import Member, RetryConfig, RouteConfig
from gateway.routing.execute import execute
from gateway.routing.router import Router
from tests.gateway.routing.scene import Clock, Output, Upstreams, call, make_router

BROKE = Failed("It broke.")


def make(hedge_after_s: float = 0.001, *, retry: RetryConfig = RetryConfig(attempts=1)) -> Router:  # noqa: B008 (frozen)
    deployments = (Member(model="a"), Member(model="b", tier=1))
    routes = {"chat": RouteConfig(deployments=deployments, hedge_after_s=hedge_after_s)}
    return make_router(routes, "a", "b", clock=Clock(), retry=retry)


def never() -> Awaitable[bool]:
    return asyncio.Event().wait()


def after(event: asyncio.Event, then: Callable[[], None] = lambda: None) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        await event.wait()
        then()

    return wait


def fail(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


async def settle(router: Router) -> None:
    await router.close()
    assert all(deployment.outstanding == 0 for deployment in router.deployments.values())


async def test_a_fast_answer_needs_no_second_attempt() -> None:
    router, asked, upstreams = make(60.0), call(), Upstreams()
    output, attempt = await execute(router, asked, upstreams)
    attempt.succeeded()
    assert (output.name, upstreams.asked, asked.trail.hedged) == ("a", ["a"], False)
    await settle(router)


async def test_the_second_attempt_wins_when_it_is_first() -> None:
    router, asked, upstreams = make(), call(), Upstreams(a=never)
    tokens = router.budget.tokens
    output, attempt = await execute(router, asked, upstreams)
    attempt.succeeded()
    assert (output.name, attempt.deployment.name, output.is_closed) == ("b", "b", False)
    assert (asked.trail.hedged, asked.trail.deployment, asked.trail.attempts) == (True, "b", 2)
    assert router.budget.tokens == tokens - 1
    await settle(router)
    assert router.deployments["a"].breaker.error_rate(1000.0) == 0


async def test_the_first_attempt_may_still_win() -> None:
    started = asyncio.Event()

    def start() -> Awaitable[bool]:
        started.set()
        return never()

    router, asked = make(), call()
    output, attempt = await execute(router, asked, Upstreams(a=after(started), b=start))
    attempt.succeeded()
    assert (output.name, asked.trail.hedged, asked.trail.deployment) == ("a", True, "a")
    await settle(router)


async def test_of_two_answers_in_the_same_moment_one_is_closed() -> None:
    both = asyncio.Event()

    def start() -> Awaitable[None]:
        both.set()
        return asyncio.sleep(0)

    router, upstreams = make(), Upstreams(a=after(both), b=start)
    output, attempt = await execute(router, call(), upstreams)
    attempt.succeeded()
    await settle(router)
    assert [other.is_closed for other in upstreams.outputs if other is not output] in ([], [True])
    assert not output.is_closed


async def test_an_answer_that_does_not_stop_when_cancelled_is_closed_when_it_comes() -> None:
    released, late = asyncio.Event(), Output("a")
    router = make()

    async def open_at(deployment: object) -> Output:
        if getattr(deployment, "name", "") == "b":
            return Output("b")
        try:
            return await never()  # type: ignore[return-value]
        except asyncio.CancelledError:
            await released.wait()
            return late

    output, attempt = await execute(router, call(), open_at)
    attempt.succeeded()
    assert output.name == "b"
    released.set()
    await settle(router)
    assert late.is_closed


async def test_an_error_of_one_waits_for_the_other() -> None:
    failed = asyncio.Event()

    def fail_then_tell() -> None:
        failed.set()
        raise BROKE

    router = make()
    output, attempt = await execute(router, call(), Upstreams(a=after(failed), b=fail_then_tell))
    attempt.succeeded()
    assert output.name == "a"
    await settle(router)


async def test_when_both_fail_the_last_error_is_raised() -> None:
    started, first = asyncio.Event(), Failed("The first one.")

    def start() -> None:
        started.set()
        raise BROKE

    router = make()
    with pytest.raises(Failed):
        await execute(router, call(), Upstreams(a=after(started, fail(first)), b=start))
    await settle(router)


async def test_an_early_error_is_retried_without_hedging() -> None:
    router, asked, upstreams = make(60.0, retry=RetryConfig(attempts=2)), call(), Upstreams(a=BROKE)
    output, attempt = await execute(router, asked, upstreams)
    attempt.succeeded()
    assert (output.name, asked.trail.hedged) == ("b", False)
    await settle(router)


@pytest.mark.parametrize("error", [Rejected("bad"), InvalidRequest("ours"), ZeroDivisionError()])
async def test_what_another_try_cannot_help_ends_both(error: Exception) -> None:
    router, upstreams = make(), Upstreams(a=never, b=error)
    with pytest.raises(type(error)) as raised:
        await execute(router, call(), upstreams)
    assert raised.value is error
    await settle(router)


async def test_without_a_budget_there_is_no_second_attempt() -> None:
    released = asyncio.Event()
    router, upstreams = make(retry=RetryConfig(attempts=1, budget_ratio=0)), Upstreams(a=after(released))
    task = asyncio.create_task(execute(router, call(), upstreams))
    await asyncio.sleep(0.01)
    released.set()
    _, attempt = await task
    attempt.succeeded()
    assert upstreams.asked == ["a"]
    await settle(router)


@pytest.mark.parametrize("moment_s", [0.0, 0.01])
async def test_cancellation_ends_both(moment_s: float) -> None:
    router, upstreams = make(), Upstreams(a=never, b=never)
    task = asyncio.create_task(execute(router, call(), upstreams))
    await asyncio.sleep(moment_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle(router)
    assert len(upstreams.asked) <= 2
