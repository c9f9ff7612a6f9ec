"""Reads off the router, the queues and the stores what metrics want to know at one moment."""

from collections.abc import Mapping

from gateway.admission.queue import Queue
from gateway.context.response_cache import ResponseCache
from gateway.routing.router import Router
from gateway.store.redis import RedisStore
from gateway.telemetry.snapshot import DeploymentFigures, GatewaySnapshot, QueueFigures


def take_snapshot(
    router: Router, queues: Mapping[str, Queue], answers: ResponseCache, redis: RedisStore | None
) -> GatewaySnapshot:
    """Take it; meant for scrapes, because describing canaries costs some milliseconds."""
    view = router.describe()
    deployments = {
        one.name: DeploymentFigures(breaker=one.breaker, is_healthy=one.is_healthy, outstanding=one.outstanding)
        for one in view.deployments
    }
    standing = {name: queue.snapshot() for name, queue in queues.items()}
    queue_figures = {
        name: QueueFigures(waiting=tuple(one.waiting.items()), refused=tuple(one.refused.items()))
        for name, one in standing.items()
    }
    return GatewaySnapshot(
        deployments=deployments,
        queues=queue_figures,
        canaries={route.name: route.canary.percent for route in view.routes if route.canary is not None},
        response_cache={"hit": answers.hits_total, "miss": answers.misses_total},
        stores={} if redis is None else {"redis": redis.available},
    )


def count_waiting(queues: Mapping[str, Queue]) -> int:
    """How many requests wait for admission, in all queues."""
    return sum(sum(queue.snapshot().waiting.values()) for queue in queues.values())
