"""A clock that tests turn, backends that do nothing, and upstreams that answer as a script says."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from backends.errors import BackendError
from backends.types import Health, ModelState
from gateway.call import Call
from gateway.routing.breaker import Breaker
from gateway.routing.config import BreakerConfig, CanaryConfig, Member, RouteConfig
from gateway.routing.deployment import Deployment
from gateway.routing.router import Router


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class StubBackend:
    """Says how it is. Routing asks nothing else of a backend."""

    def __init__(self, state: ModelState = "ready") -> None:
        self.state = state

    async def health(self) -> Health:
        return Health(state=self.state)


class CheckedBackend:
    """Has an active check, which raises `error` while there is one, or hangs."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs = False
        self.checks = 0

    async def check(self) -> None:
        self.checks += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error


class Output:
    """What an upstream opened."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


Step = BaseException | Callable[[], Any] | None


class Upstreams:
    """`open` for `execute`: each deployment plays its steps in turn, and the last of them for ever.

    A step is None (it answers), an exception, or a function that may return an awaitable to wait for first.
    """

    def __init__(self, **scripts: Step | list[Step]) -> None:
        self.scripts = {name: list(steps) if isinstance(steps, list) else [steps] for name, steps in scripts.items()}
        self.asked: list[str] = []
        self.outputs: list[Output] = []

    async def __call__(self, deployment: Deployment) -> Output:
        self.asked.append(deployment.name)
        steps = self.scripts.get(deployment.name, [None])
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        if callable(step):
            waiting = step()
            if waiting is not None:
                await waiting
        elif step is not None:
            raise step
        output = Output(deployment.name)
        self.outputs.append(output)
        return output


def call(model: str = "chat", *, session: str = "", prefix: tuple[int, ...] = (), tags: frozenset[str] = frozenset()) -> Call:
    made = Call("request", "chat", model)
    made.session, made.prefix, made.tags = session, prefix, tags
    return made


def members(*names: str) -> tuple[Member, ...]:
    return tuple(Member(model=name) for name in names)


def route(*names: str, **settings: Any) -> RouteConfig:
    return RouteConfig(deployments=members(*names), **settings)


def make_router(
    routes: Mapping[str, RouteConfig], *names: str, clock: Clock, backends: Mapping[str, Any] | None = None, **settings: Any
) -> Router:
    made = {name: (backends or {}).get(name) or CheckedBackend() for name in names}
    return Router(routes, made, clock=clock, random=Random(7), sleep=clock.sleep, **settings)


def make_deployment(clock: Clock, name: str = "a", backend: Any = None, **settings: Any) -> Deployment:
    return Deployment(name, backend or CheckedBackend(), Breaker(BreakerConfig(**settings), Random(1)), clock)


def break_open(deployment: Deployment, error: BackendError) -> None:
    """Let attempts fail until the breaker opens."""
    while deployment.breaker.allows(deployment.clock()):
        deployment.begin(call()).failed(error)


def canary_config(**settings: Any) -> CanaryConfig:
    return CanaryConfig(deployment="new", **settings)
