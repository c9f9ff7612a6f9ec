"""What the dashboard shows, as one document: how it looks and how it is put together. Plain values in, plain values out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from backends.types import Health, ModelState
from gateway.admission.queue import QueueSnapshot
from gateway.routing.breaker import BreakerState
from gateway.routing.canary import CanaryView
from gateway.routing.views import DeploymentView, RouterView
from gateway.telemetry.usage import KeyUsage

MAX_KEYS = 50
"""Keys that are shown one by one."""

_RATE_S = 10
_ERRORS_S = 60
_BUSY_SECONDS = 10
_MICROSECONDS = 6


class LiveSeries(Struct, frozen=True, kw_only=True):
    """The last minutes, one entry every `step_s` seconds, oldest first; the last step ended at `until` (Unix seconds).

    Percentiles are those of one step, in seconds; None where nothing happened.
    """

    until: float
    step_s: int
    requests: list[int]
    errors: list[int]
    tokens: list[int]
    queue_depth: list[int]
    ttft_p50_s: list[float | None]
    ttft_p95_s: list[float | None]
    itl_p50_s: list[float | None]
    itl_p95_s: list[float | None]


class Recent(Struct, frozen=True, kw_only=True):
    """The figures of this moment.

    Rates are means over the last 10 s; `requests` and `errors` count the last minute. Times are those of the last 10 seconds
    in which there were any, None without: of p50 the middle one, of p95 the highest, so the true p95 is at most that.
    """

    requests_per_s: float
    tokens_per_s: float
    requests: int
    errors: int
    running: int
    waiting: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    itl_p50_s: float | None
    itl_p95_s: float | None


class LiveDeployment(Struct, frozen=True, kw_only=True):
    """One deployment: what it says of itself (`state` to `slots`), and what routing thinks of it.

    `error_rate` (0 to 1) is that of the breaker's window. `ttft_s` is a moving average, None while unknown. `paused_s` is how
    much longer it asked to be left alone.
    """

    name: str
    state: ModelState
    detail: str
    running: int
    waiting: int
    slots: int
    breaker: BreakerState
    error_rate: float
    outstanding: int
    ttft_s: float | None
    is_healthy: bool
    paused_s: float


class LiveRoute(Struct, frozen=True, kw_only=True):
    """One public name. `running` counts units of its queue (`capacity` 0: no limit), `refused` requests since the start."""

    name: str
    deployments: tuple[str, ...]
    running: int
    capacity: int
    waiting: int
    refused: int
    canary: CanaryView | None


class LiveUsage(Struct, frozen=True, kw_only=True):
    """What keys used since `since` (Unix seconds), most tokens first, and what the `others` used that are not shown."""

    since: float
    keys: list[KeyUsage]
    others: KeyUsage | None


class StoreState(Struct, frozen=True, kw_only=True):
    """Whether a store answers: `up`, `down`, or `unused` while it holds nothing and is not opened."""

    name: str
    state: Literal["up", "down", "unused"]
    detail: str = ""


class LiveDocument(Struct, frozen=True, kw_only=True):
    """Everything, at `at` (Unix seconds). `retry_tokens` is how many retries could be made at once."""

    at: float
    is_draining: bool
    recent: Recent
    series: LiveSeries
    deployments: list[LiveDeployment]
    routes: list[LiveRoute]
    usage: LiveUsage
    stores: list[StoreState]
    retry_tokens: float


def build_live(
    *,
    at: float,
    is_draining: bool,
    series: Mapping[str, object],
    router: RouterView,
    healths: Mapping[str, Health],
    queues: Mapping[str, QueueSnapshot],
    usage: Sequence[KeyUsage],
    usage_since: float,
    stores: Iterable[StoreState],
) -> LiveDocument:
    """Put the document together.

    Args:
        series: what `gateway.telemetry.live.Live.snapshot` returns.
        healths: by the name of the configured model.
        queues: by public name.
        usage: most tokens first.
    """
    read = _rounded(msgspec.convert(series, LiveSeries))
    routes = [_route(route.name, route.deployments, route.canary, queues.get(route.name)) for route in router.routes]
    return LiveDocument(
        at=at,
        is_draining=is_draining,
        recent=_recent(read, routes),
        series=read,
        deployments=[_deployment(view, healths.get(view.name)) for view in router.deployments],
        routes=routes,
        usage=LiveUsage(since=usage_since, keys=list(usage[:MAX_KEYS]), others=_sum(usage[MAX_KEYS:])),
        stores=list(stores),
        retry_tokens=router.retry_tokens,
    )


def _rounded(series: LiveSeries) -> LiveSeries:
    """Percentiles to the microsecond: full floats would double the size of the document."""
    names = ("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s")
    shorter = {name: [None if s is None else round(s, _MICROSECONDS) for s in getattr(series, name)] for name in names}
    return msgspec.structs.replace(series, **shorter)


def _recent(series: LiveSeries, routes: Sequence[LiveRoute]) -> Recent:
    steps, minute = max(1, _RATE_S // series.step_s), max(1, _ERRORS_S // series.step_s)
    # A gateway that has just started has fewer.
    seconds = max(1, len(series.requests[-steps:])) * series.step_s
    return Recent(
        requests_per_s=sum(series.requests[-steps:]) / seconds,
        tokens_per_s=sum(series.tokens[-steps:]) / seconds,
        requests=sum(series.requests[-minute:]),
        errors=sum(series.errors[-minute:]),
        running=sum(route.running for route in routes),
        waiting=sum(route.waiting for route in routes),
        ttft_p50_s=_middle(_busy(series.ttft_p50_s)),
        ttft_p95_s=max(_busy(series.ttft_p95_s), default=None),
        itl_p50_s=_middle(_busy(series.itl_p50_s)),
        itl_p95_s=max(_busy(series.itl_p95_s), default=None),
    )


def _busy(times: Sequence[float | None]) -> list[float]:
    return [time for time in times if time is not None][-_BUSY_SECONDS:]


def _middle(times: list[float]) -> float | None:
    return sorted(times)[len(times) // 2] if times else None


def _deployment(view: DeploymentView, health: Health | None) -> LiveDeployment:
    # One that a reload has just brought has not said how it is.
    health = health or Health(state="loading")
    return LiveDeployment(
        name=view.name,
        state=health.state,
        detail=health.detail,
        running=health.running,
        waiting=health.waiting,
        slots=health.slots,
        breaker=view.breaker,
        error_rate=view.error_rate,
        outstanding=view.outstanding,
        ttft_s=view.ttft_s or None,
        is_healthy=view.is_healthy,
        paused_s=view.paused_s,
    )


def _route(name: str, deployments: tuple[str, ...], canary: CanaryView | None, queue: QueueSnapshot | None) -> LiveRoute:
    return LiveRoute(
        name=name,
        deployments=deployments,
        running=queue.running if queue else 0,
        capacity=queue.capacity if queue else 0,
        waiting=sum(queue.waiting.values()) if queue else 0,
        refused=sum(queue.refused.values()) if queue else 0,
        canary=canary,
    )


def _sum(rest: Sequence[KeyUsage]) -> KeyUsage | None:
    if not rest:
        return None
    return KeyUsage(
        key_id="",
        name="",
        requests=sum(usage.requests for usage in rest),
        tokens=sum(usage.tokens for usage in rest),
        cost_usd=sum(usage.cost_usd for usage in rest),
    )
