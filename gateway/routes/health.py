"""Whether the process lives, and whether its models can answer. For load balancers, orchestrators and the console."""

from litestar import Response, get

from backends.types import Health
from gateway.routes.operator import ServicesDependency
from gateway.services import Services

_SERVING = ("ready", "degraded")


@get("/health/live")
async def live() -> Response[dict[str, str]]:
    """Say that the event loop runs; says nothing about models."""
    return Response({"status": "ok"})


@get(["/health/ready", "/health"])
async def ready(services: ServicesDependency) -> Response[dict[str, object]]:
    """Say how each model is: 200 when all serve and the gateway does not drain, else 503."""
    healths = await services.healths()
    status = _overall(services, healths)
    body: dict[str, object] = {"status": status, "models": {name: _describe(health) for name, health in healths.items()}}
    return Response(body, status_code=200 if status == "ready" else 503, headers={"cache-control": "no-store"})


def _overall(services: Services, healths: dict[str, Health]) -> str:
    if services.drain.draining:
        return "draining"
    if not services.stores.ring.is_known:
        return "loading"
    states = [health.state for health in healths.values()]
    if all(state in _SERVING for state in states):
        return "ready"
    return "loading" if "loading" in states else "unavailable"


def _describe(health: Health) -> dict[str, object]:
    return {
        "state": health.state,
        "detail": health.detail,
        "running": health.running,
        "waiting": health.waiting,
        "slots": health.slots,
    }
