"""How routing stands, as plain values for an admin page and for metrics."""

from msgspec import Struct

from gateway.routing.breaker import BreakerState
from gateway.routing.canary import CanaryView


class DeploymentView(Struct, frozen=True, kw_only=True):
    """One deployment. `error_rate` is that of the breaker's window; `ttft_s` is 0 when unknown, `paused_s` what is left."""

    name: str
    breaker: BreakerState
    error_rate: float
    outstanding: int
    ttft_s: float
    is_healthy: bool
    is_ready: bool
    paused_s: float


class RouteView(Struct, frozen=True, kw_only=True):
    """One public name, with the names of its deployments, lowest tier first."""

    name: str
    deployments: tuple[str, ...]
    canary: CanaryView | None = None


class RouterView(Struct, frozen=True, kw_only=True):
    """Everything. `retry_tokens` is how many retries could be made at once."""

    deployments: tuple[DeploymentView, ...]
    routes: tuple[RouteView, ...]
    retry_tokens: float
