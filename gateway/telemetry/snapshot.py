"""What stands elsewhere in the gateway at one moment, as plain values, and how it is exported.

The figures live in the queue, the router, the cache and the stores. They are asked at scrape time and never mirrored.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from msgspec import Struct
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.telemetry.figures import PREFIX, Amounts, counter, gauge

_BREAKER_VALUES = {"closed": 0.0, "half_open": 1.0, "open": 2.0}


class DeploymentFigures(Struct, frozen=True, kw_only=True):
    """One deployment. `outstanding` is how many attempts run; `is_healthy` is what active checks say."""

    breaker: Literal["closed", "half_open", "open"]
    is_healthy: bool
    outstanding: int


class QueueFigures(Struct, frozen=True, kw_only=True):
    """The queue of one model: how many requests wait, by priority, and how many were refused so far, by reason."""

    waiting: tuple[tuple[str, int], ...]
    refused: tuple[tuple[str, int], ...] = ()


class GatewaySnapshot(Struct, frozen=True, kw_only=True):
    """All of it. Every name comes from the configuration.

    Attributes:
        deployments: by name.
        queues: by public model name.
        canaries: the percentage of each route that has a canary.
        response_cache: how many look-ups of the response cache ended as `hit` or `miss`, so far.
        stores: whether each store answers.
    """

    deployments: Mapping[str, DeploymentFigures] = {}
    queues: Mapping[str, QueueFigures] = {}
    canaries: Mapping[str, float] = {}
    response_cache: Mapping[str, int] = {}
    stores: Mapping[str, bool] = {}


class SnapshotFamilies(Collector):
    """Exports the present snapshot.

    Attributes:
        read: takes the snapshot.
    """

    def __init__(self) -> None:
        self.read: Callable[[], GatewaySnapshot] = GatewaySnapshot

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        now = self.read()
        yield from _of_deployments(now.deployments)
        waiting: Amounts = {(model, rank): n for model, queue in now.queues.items() for rank, n in queue.waiting}
        refused: Amounts = {(model, why): n for model, queue in now.queues.items() for why, n in queue.refused}
        canaries: Amounts = {(route,): percent for route, percent in now.canaries.items()}
        looked_up: Amounts = {(outcome,): count for outcome, count in now.response_cache.items()}
        stores: Amounts = {(name,): float(is_up) for name, is_up in now.stores.items()}
        yield gauge(PREFIX + "queue_depth", "Requests that wait for admission.", ("model", "priority"), waiting)
        yield counter(PREFIX + "queue_refused", "Requests that the queue refused.", ("model", "reason"), refused)
        yield gauge(PREFIX + "canary_percent", "Of a route's conversations at its canary.", ("route",), canaries)
        yield counter(PREFIX + "response_cache", "Look-ups in the response cache.", ("outcome",), looked_up)
        yield gauge(PREFIX + "store_available", "1 while the store answers.", ("store",), stores)


def _of_deployments(deployments: Mapping[str, DeploymentFigures]) -> Iterator[Metric]:
    breakers: Amounts = {(name,): _BREAKER_VALUES[one.breaker] for name, one in deployments.items()}
    healthy: Amounts = {(name,): float(one.is_healthy) for name, one in deployments.items()}
    outstanding: Amounts = {(name,): one.outstanding for name, one in deployments.items()}
    label = ("deployment",)
    yield gauge(PREFIX + "breaker_state", "0 closed, 1 half-open, 2 open.", label, breakers)
    yield gauge(PREFIX + "deployment_healthy", "1 while active checks find it healthy.", label, healthy)
    yield gauge(PREFIX + "deployment_outstanding", "Attempts that run.", label, outstanding)
