"""Other models stand in when no deployment of the one asked for can answer."""

import pytest

from backends.errors import ContextOverflow, Failed, Rejected, Unavailable
from gateway.routing.config import RetryConfig
from gateway.routing.execute import execute
from gateway.routing.router import Router
from tests.gateway.routing.scene import Clock, Upstreams, break_open, call, make_router, route

BROKE = Failed("It broke.", code="upstream_broke")
TOO_LONG = ContextOverflow("The prompt has 9,000 tokens.")


def make(clock: Clock | None = None, retry: RetryConfig = RetryConfig(attempts=1)) -> Router:  # noqa: B008 (frozen)
    routes = {
        "big": route("a", fallbacks=("middle", "c"), context_fallbacks=("long",)),
        "middle": route("b", fallbacks=("small",)),
        "small": route("s"),
        "long": route("l"),
    }
    return make_router(routes, "a", "b", "c", "s", "l", clock=clock or Clock(), retry=retry)


async def serve(router: Router, upstreams: Upstreams, model: str = "big") -> tuple[str, str, str]:
    """Who answered, for which stand-in, and why."""
    asked = call(model)
    output, attempt = await execute(router, asked, upstreams)
    attempt.succeeded()
    assert asked.trail.deployment == output.name
    return output.name, asked.trail.fallback, asked.trail.reason


async def test_fallbacks_stand_in_in_order_each_followed_by_its_own() -> None:
    router = make()
    assert await serve(router, Upstreams()) == ("a", "", "")
    assert await serve(router, Upstreams(a=BROKE)) == ("b", "middle", "upstream_broke")
    assert await serve(router, Upstreams(a=BROKE, b=BROKE)) == ("s", "small", "upstream_broke")
    upstreams = Upstreams(a=BROKE, b=BROKE, s=BROKE)
    assert await serve(router, upstreams) == ("c", "c", "upstream_broke")
    assert upstreams.asked == ["a", "b", "s", "c"]


async def test_when_all_fail_the_last_error_is_raised_and_nobody_stood_in() -> None:
    last, asked = Failed("The last one."), call("big")
    with pytest.raises(Failed) as raised:
        await execute(make(), asked, Upstreams(a=BROKE, b=BROKE, s=BROKE, c=last))
    assert raised.value is last
    assert (asked.trail.fallback, asked.trail.reason, asked.trail.attempts) == ("", "", 4)


async def test_retries_come_before_fallbacks() -> None:
    upstreams = Upstreams(a=BROKE)
    await serve(make(retry=RetryConfig(attempts=3)), upstreams)
    assert upstreams.asked == ["a", "a", "a", "b"]


async def test_a_broken_primary_costs_nothing_once_its_breaker_is_open() -> None:
    router = make()
    break_open(router.deployments["a"], BROKE)
    upstreams = Upstreams(a=BROKE)
    assert await serve(router, upstreams) == ("b", "middle", "no_healthy_deployment")
    assert upstreams.asked == ["b"]


async def test_stand_ins_are_not_counted_as_retries() -> None:
    router = make(retry=RetryConfig(attempts=1, budget_ratio=0))
    for _ in range(100):
        await serve(router, Upstreams(a=BROKE))


async def test_a_prompt_that_does_not_fit_goes_to_a_longer_context_only() -> None:
    router = make()
    assert await serve(router, Upstreams(a=TOO_LONG)) == ("l", "long", "context_length_exceeded")
    upstreams = Upstreams(a=TOO_LONG, l=TOO_LONG)
    with pytest.raises(ContextOverflow):
        await serve(router, upstreams)
    assert upstreams.asked == ["a", "l"]
    with pytest.raises(ContextOverflow):
        await serve(router, Upstreams(b=TOO_LONG), "middle")


async def test_a_bad_request_is_nobodys_to_stand_in_for() -> None:
    upstreams = Upstreams(a=Rejected("bad"))
    with pytest.raises(Rejected):
        await serve(make(), upstreams)
    assert upstreams.asked == ["a"]


async def test_each_model_is_tried_once_however_the_fallbacks_cross() -> None:
    routes = {
        "one": route("a", fallbacks=("two", "three")),
        "two": route("b", context_fallbacks=("one", "three")),
        "three": route("c"),
    }
    router = make_router(routes, "a", "b", "c", clock=Clock(), retry=RetryConfig(attempts=1))
    upstreams = Upstreams(a=BROKE, b=TOO_LONG, c=TOO_LONG)
    with pytest.raises(ContextOverflow):
        await serve(router, upstreams, "one")
    assert upstreams.asked == ["a", "b", "c"]


async def test_no_model_stands_in_after_the_deadline() -> None:
    clock = Clock()
    asked = call("big")
    asked.deadline = clock.now + 1

    def fail_late() -> None:
        clock.now += 2
        raise BROKE

    upstreams = Upstreams(a=fail_late)
    with pytest.raises(Failed):
        await execute(make(clock), asked, upstreams)
    assert upstreams.asked == ["a"]


async def test_unavailable_without_stand_ins_is_what_the_client_gets() -> None:
    router = make()
    break_open(router.deployments["s"], BROKE)
    with pytest.raises(Unavailable) as refused:
        await serve(router, Upstreams(), "small")
    assert refused.value.code == "no_healthy_deployment"
