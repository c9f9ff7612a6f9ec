"""Deployments that are dead get no traffic, and get it back within seconds of being back."""

import asyncio
from collections.abc import Callable

import pytest

from backends.errors import Failed, Overloaded, Unavailable
from backends.types import ModelState
from gateway.routing.config import HealthConfig
from gateway.routing.execute import execute
from gateway.routing.health import Watch
from tests.gateway.routing.scene import (
    CheckedBackend,
    Clock,
    StubBackend,
    Upstreams,
    break_open,
    call,
    make_deployment,
    make_router,
    route,
)

DEAD = Unavailable("Nobody answers.", code="upstream_unreachable")


async def turn_until(is_done: Callable[[], bool]) -> None:
    """Let other tasks run, for at most ten thousand turns of the loop."""
    for _ in range(10_000):
        if is_done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


async def look(watch: Watch, times: int = 1) -> None:
    for _ in range(times):
        await watch.look()


async def test_one_failed_check_is_no_verdict_two_are() -> None:
    backend = CheckedBackend()
    deployment = make_deployment(Clock(), backend=backend)
    watch = Watch(deployment, HealthConfig())
    backend.error = DEAD
    await look(watch)
    assert deployment.is_healthy
    await look(watch)
    assert not deployment.is_healthy
    assert not deployment.is_usable(1000.0, last_resort=True)
    assert deployment.wait_s(1000.0) > 0
    backend.error = None
    await look(watch)
    assert deployment.is_usable(1000.0)


async def test_more_passed_checks_can_be_asked_for() -> None:
    backend = CheckedBackend()
    deployment = make_deployment(Clock(), backend=backend)
    watch = Watch(deployment, HealthConfig(unhealthy_after=1, healthy_after=3))
    backend.error = DEAD
    await look(watch)
    backend.error = None
    await look(watch, 2)
    assert not deployment.is_healthy
    await look(watch)
    assert deployment.is_healthy


async def test_a_check_that_hangs_has_failed() -> None:
    backend = CheckedBackend()
    backend.hangs = True
    deployment = make_deployment(Clock(), backend=backend)
    await look(Watch(deployment, HealthConfig(timeout_s=0.01)), 2)
    assert not deployment.is_healthy


async def test_one_that_answers_but_is_busy_lives() -> None:
    backend = CheckedBackend()
    backend.error = Overloaded("later", retry_after_s=60)
    deployment = make_deployment(Clock(), backend=backend)
    await look(Watch(deployment, HealthConfig()), 5)
    assert deployment.is_healthy


async def test_a_bug_in_a_check_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    backend = CheckedBackend()
    backend.error = ZeroDivisionError("a bug")
    deployment = make_deployment(Clock(), backend=backend)
    watch = Watch(deployment, HealthConfig())
    await look(watch, 2)
    assert not deployment.is_healthy
    assert "ZeroDivisionError" in caplog.text
    backend.error = None
    await look(watch)
    assert deployment.is_healthy


async def test_a_passed_check_after_a_failed_one_ends_the_rest_of_the_breaker() -> None:
    backend = CheckedBackend()
    deployment = make_deployment(Clock(), backend=backend)
    watch = Watch(deployment, HealthConfig())
    break_open(deployment, DEAD)
    await look(watch)
    assert deployment.breaker.state(1000.0) == "open", "a check that never failed says nothing new"
    backend.error = DEAD
    await look(watch)
    backend.error = None
    await look(watch)
    assert deployment.breaker.state(1000.0) == "half_open"


@pytest.mark.parametrize("state", ["loading", "failed", "stopped"])
async def test_an_engine_that_is_not_ready_is_the_last_resort(state: ModelState) -> None:
    clock = Clock()
    backends = {"engine": StubBackend(state), "cloud": CheckedBackend()}
    router = make_router({"chat": route("engine", "cloud")}, "engine", "cloud", clock=clock, backends=backends)
    engine, cloud = router.deployments.values()
    await look(Watch(engine, HealthConfig()))
    chosen = {router.resolve("chat").choose(call()).deployment.name for _ in range(20)}
    assert chosen == {"cloud"}
    cloud.is_healthy = False
    assert router.resolve("chat").choose(call()).deployment is engine
    assert router.resolve("engine").choose(call("engine")).deployment is engine


async def test_an_engine_that_becomes_ready_is_probed_at_once() -> None:
    backend = StubBackend("loading")
    deployment = make_deployment(Clock(), backend=backend)
    watch = Watch(deployment, HealthConfig())
    await look(watch)
    break_open(deployment, Failed("It crashes while it loads."))
    backend.state = "degraded"
    await look(watch)
    assert deployment.is_ready
    assert deployment.breaker.state(1000.0) == "half_open"


async def test_traffic_is_back_within_five_seconds() -> None:
    """The clock moves only by the sleeps of the monitor, so the seconds counted are those of its schedule."""
    clock, backend = Clock(), CheckedBackend()
    router = make_router({}, "a", clock=clock, backends={"a": backend})
    backend.error = DEAD
    router.start()
    router.start()
    try:
        deployment = router.deployments["a"]
        break_open(deployment, DEAD)

        def has_been_dead_for_long() -> bool:
            break_open(deployment, DEAD)
            return not deployment.is_healthy and clock.now > 1200

        await turn_until(has_been_dead_for_long)
        with pytest.raises(Unavailable) as refused:
            await execute(router, call("a"), Upstreams())
        assert refused.value.code == "no_healthy_deployment"
        backend.error, back_at = None, clock.now
        await turn_until(lambda: deployment.is_usable(clock.now))
        for _ in range(10):
            _, attempt = await execute(router, call("a"), Upstreams())
            attempt.succeeded()
        assert deployment.breaker.state(clock.now) == "closed"
        assert clock.now - back_at <= 5
    finally:
        await router.close()
        await router.close()


async def test_checks_begin_in_a_steady_rhythm_however_long_they_take() -> None:
    clock = Clock()

    class SlowBackend(CheckedBackend):
        async def check(self) -> None:
            await super().check()
            clock.now += 1.5

    backend = SlowBackend()
    router = make_router({}, "a", clock=clock, backends={"a": backend}, health=HealthConfig(interval_s=2.0))
    router.start()
    await turn_until(lambda: backend.checks == 5)
    await router.close()
    assert clock.slept[:4] == [0.5] * 4
