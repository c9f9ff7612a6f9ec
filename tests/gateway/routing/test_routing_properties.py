"""Random traffic over random outages: the books balance, and nobody gets what the rules forbid."""

import asyncio
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from backends.errors import BackendError, ContextOverflow, Failed, Overloaded, Rejected, TimedOut, Unavailable
from gateway.errors import ApiError, InvalidRequest
from gateway.routing.config import BreakerConfig, CanaryConfig, Member, PolicyName, RetryConfig, RouteConfig
from gateway.routing.deployment import Deployment
from gateway.routing.execute import execute
from gateway.routing.router import Router
from tests.gateway.routing.scene import CheckedBackend, Clock, Output, call

ERRORS = [
    Failed("broke"),
    TimedOut("slow"),
    Unavailable("gone"),
    Overloaded("full"),
    Overloaded("later", retry_after_s=3),
    Rejected("bad"),
    ContextOverflow("long"),
    InvalidRequest("ours"),
]
POLICIES: list[PolicyName] = ["weighted", "least_outstanding", "lowest_latency", "prefix_affinity", "session_affinity"]
NAMES = "abcd"


class World:
    """Three routes over four deployments, whose answers a seed decides."""

    def __init__(self, seed: int, policy: PolicyName, hedge_after_s: float) -> None:
        self.random, self.clock, self.hedges = Random(seed), Clock(), hedge_after_s > 0
        members = (Member(model="a", weight=2), Member(model="b"), Member(model="c", tier=1))
        routes = {
            "chat": RouteConfig(
                deployments=members,
                policy=policy,
                fallbacks=("spare",),
                context_fallbacks=("d",),
                canary=CanaryConfig(deployment="d", steps=(20.0, 100.0), min_samples=20, hold_s=0),
                hedge_after_s=hedge_after_s,
            ),
            "spare": RouteConfig(deployments=(Member(model="c"), Member(model="d"))),
        }
        self.router = Router(
            routes,
            {name: CheckedBackend() for name in NAMES},
            breaker=BreakerConfig(min_calls=10, window_s=10, half_open_probes=2, consecutive_failures=4),
            retry=RetryConfig(attempts=3),
            clock=self.clock,
            random=self.random,
            sleep=self.clock.sleep,
        )
        self.fault_rate = dict.fromkeys(NAMES, 0.0)
        self.opened: list[Output] = []
        self.given: list[Output] = []

    async def open(self, deployment: Deployment) -> Output:
        now = self.clock.now
        assert deployment.outstanding >= 1
        if not self.hedges:  # there, an attempt opens in the next turn of the loop, when all may have changed
            assert deployment.is_healthy
            assert deployment.breaker.state(now) != "open", "an open breaker lets nothing pass"
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)
            self.clock.now += self.random.random()
        if self.random.random() < self.fault_rate[deployment.name]:
            raise self.random.choice(ERRORS)
        output = Output(deployment.name)
        self.opened.append(output)
        return output

    async def request(self) -> None:
        asked = call(session=str(self.random.randrange(20)), prefix=tuple(range(self.random.randrange(4))))
        output, attempt = await execute(self.router, asked, self.open)
        self.given.append(output)
        assert asked.trail.deployment == output.name
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            attempt.cancelled()
            raise
        end = self.random.randrange(4)
        if end == 0:
            attempt.cancelled()
        elif end == 1 and self.random.random() < self.fault_rate[output.name]:
            attempt.failed(Failed("broke in the middle"))
        else:
            attempt.succeeded(0.01)

    async def burst(self, size: int) -> None:
        tasks = [asyncio.create_task(self.request()) for _ in range(size)]
        for task in tasks:
            if self.random.random() < 0.2:
                await asyncio.sleep(0)
                task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, BackendError | ApiError | asyncio.CancelledError), repr(result)

    async def live(self, rounds: int) -> None:
        for _ in range(rounds):
            for name in NAMES:
                self.fault_rate[name] = self.random.choice([0.0, 0.0, 0.1, 0.5, 1.0])
                self.router.deployments[name].is_healthy = self.random.random() < 0.8
            await self.burst(self.random.randrange(1, 12))
            self.clock.now += self.random.choice([0.0, 1.0, 20.0])
            assert all(deployment.outstanding >= 0 for deployment in self.router.deployments.values())
        await self.router.close()


@given(st.integers(0, 2**32), st.sampled_from(POLICIES), st.sampled_from([0.0, 0.0001]))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_every_attempt_ends_and_every_output_is_closed(
    seed: int, policy: PolicyName, hedge_after_s: float
) -> None:
    world = World(seed, policy, hedge_after_s)
    asyncio.run(world.live(12))
    assert {name: deployment.outstanding for name, deployment in world.router.deployments.items()} == dict.fromkeys(NAMES, 0)
    assert all(output.is_closed for output in world.opened if output not in world.given)
    assert 0 <= world.router.budget.tokens <= 20
