"""All routes and deployments of one gateway, and what they share: the retry budget, the health checks, the clock."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from random import Random
from time import monotonic
from typing import Any

from backends.errors import ModelNotFound
from backends.protocol import Backend
from gateway.routing.affinity import PrefixAffinity, SessionAffinity
from gateway.routing.breaker import Breaker
from gateway.routing.canary import Canary
from gateway.routing.check import check_routes, public_names
from gateway.routing.config import BreakerConfig, HealthConfig, Member, PolicyName, RetryConfig, RouteConfig
from gateway.routing.deployment import Deployment
from gateway.routing.health import HealthMonitor
from gateway.routing.policies import LeastOutstanding, LowestLatency, Policy, Weighted
from gateway.routing.retry import RetryBudget
from gateway.routing.route import Route
from gateway.routing.seat import Seat
from gateway.routing.views import DeploymentView, RouterView, RouteView
from gateway.telemetry.upstream import UpstreamSeries

_MAX_NAMES_IN_MESSAGE = 10
_MAX_NAME_CHARS = 200


class Router:
    """Built from a checked configuration.

    Args:
        routes: by public name. A backend is also a route of its own name, unless a private route holds it or a route has that
            name.
        backends: by the name of the configured model.
        sleep: waits for seconds.
        series: what the attempts at a deployment are counted in, by its name.
        previous: the router that this one follows after a reload. Deployments with the same backend and the same rules for
            their breaker are taken over as they are, and so are routes whose configuration and deployments are the same: what
            was learned about them, and the state of a canary, goes on.

    Attributes:
        deployments: by the name of the configured model.

    Raises:
        ValueError: the routes have one of the mistakes that `check_routes` finds.
    """

    def __init__(
        self,
        routes: Mapping[str, RouteConfig],
        backends: Mapping[str, Backend],
        *,
        breaker: BreakerConfig = BreakerConfig(),  # noqa: B008 (frozen)
        retry: RetryConfig = RetryConfig(),  # noqa: B008 (frozen)
        health: HealthConfig = HealthConfig(),  # noqa: B008 (frozen)
        clock: Callable[[], float] = monotonic,
        random: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        series: Callable[[str], UpstreamSeries] = lambda _: UpstreamSeries(),
        previous: "Router | None" = None,
    ) -> None:
        if errors := check_routes(routes, backends):
            raise ValueError("\n".join(errors))
        self.clock = clock
        self.random = random or Random()
        self.sleep = sleep
        self.retry = retry
        self.budget: RetryBudget = previous.budget if previous and previous.retry == retry else RetryBudget(retry.budget_ratio)
        self._breaker = breaker
        known = previous.deployments if previous and previous._breaker == breaker else {}
        self.deployments: dict[str, Deployment] = {
            name: known[name]
            if name in known and known[name].backend is backend
            else Deployment(name, backend, Breaker(breaker, self.random), clock, series(name))
            for name, backend in backends.items()
        }
        names = public_names(routes, backends)
        self._configs = {name: routes.get(name) or RouteConfig(deployments=(Member(model=name),)) for name in names}
        self._routes = {name: self._take_over(name, previous) or self._build(name) for name in names}
        self._health = HealthMonitor(self.deployments.values(), health, clock, sleep)
        self._remains: set[asyncio.Task[None]] = set()

    def resolve(self, model: str) -> Route:
        """Find the route of a public name.

        Raises:
            ModelNotFound: there is none; the message lists up to ten that there are.
        """
        route = self._routes.get(model)
        if route is None:
            raise ModelNotFound(f"The model '{model[:_MAX_NAME_CHARS]}' does not exist here. {self._served()}", param="model")
        return route

    def names(self) -> tuple[str, ...]:
        """All public names: routes first, in the order of the configuration."""
        return tuple(self._routes)

    def describe(self) -> RouterView:
        """Say how everything stands."""
        return RouterView(
            deployments=tuple(self._describe(deployment) for deployment in self.deployments.values()),
            routes=tuple(
                RouteView(
                    name=route.name,
                    deployments=tuple(seat.deployment.name for seat in route.seats),
                    canary=None if route.canary is None else route.canary.view(),
                )
                for route in self._routes.values()
            ),
            retry_tokens=self.budget.tokens,
        )

    def start(self) -> None:
        """Begin the health checks, in the running event loop."""
        self._health.start()

    async def close(self) -> None:
        """End the health checks, and wait until abandoned attempts are closed. May be called twice."""
        await self._health.close()
        if self._remains:
            await asyncio.wait(self._remains)

    def finish_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what nobody waits for to its end; `close` waits."""
        task = asyncio.get_running_loop().create_task(work)
        self._remains.add(task)
        task.add_done_callback(self._remains.discard)

    def _take_over(self, name: str, previous: "Router | None") -> Route | None:
        """The route as it was; None when anything about it has changed."""
        if previous is None or previous._configs.get(name) != self._configs[name]:
            return None
        route = previous._routes[name]
        seats = route.seats if route.trial is None else (*route.seats, route.trial)
        is_same = all(self.deployments.get(seat.deployment.name) is seat.deployment for seat in seats)
        return route if is_same else None

    def _build(self, name: str) -> Route:
        config = self._configs[name]
        canary = trial = None
        if config.canary is not None:
            canary = Canary(name, config.canary, self.clock, self.random)
            deployment, tags = self.deployments[config.canary.deployment], frozenset(config.canary.tags)
            trial = Seat(deployment, tags=tags, outcomes=canary.trial, is_canary=True)
        seats = [
            Seat(
                self.deployments[member.model],
                weight=member.weight,
                tier=member.tier,
                tags=frozenset(member.tags),
                outcomes=None if canary is None else canary.baseline,
            )
            for member in config.deployments
            if member.weight > 0
        ]
        return Route(
            name,
            seats,
            self._policy(config.policy),
            self.clock,
            canary=canary,
            trial=trial,
            fallbacks=config.fallbacks,
            context_fallbacks=config.context_fallbacks,
            hedge_after_s=config.hedge_after_s,
        )

    def _policy(self, name: PolicyName) -> Policy:
        match name:
            case "weighted":
                return Weighted(self.random)
            case "least_outstanding":
                return LeastOutstanding(self.random)
            case "lowest_latency":
                return LowestLatency(self.random, self.clock)
            case "prefix_affinity":
                return PrefixAffinity(self.random, self.clock)
            case "session_affinity":
                return SessionAffinity(self.random)

    def _describe(self, deployment: Deployment) -> DeploymentView:
        now = self.clock()
        return DeploymentView(
            name=deployment.name,
            breaker=deployment.breaker.state(now),
            error_rate=deployment.breaker.error_rate(now),
            outstanding=deployment.outstanding,
            ttft_s=deployment.ttft_s or 0.0,
            is_healthy=deployment.is_healthy,
            is_ready=deployment.is_ready,
            paused_s=max(0.0, deployment.paused_until - now),
        )

    def _served(self) -> str:
        shown = list(self._routes)[:_MAX_NAMES_IN_MESSAGE]
        more = len(self._routes) - len(shown)
        if not shown:
            return "No model is served."
        return f"Served: {', '.join(shown)}" + (f" and {more} more." if more else ".")
