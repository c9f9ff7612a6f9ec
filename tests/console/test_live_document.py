"""The document behind the dashboard, from plain values."""

from typing import Any

import msgspec
import pytest

from backends.types import Health
from gateway.admission.queue import QueueSnapshot
from gateway.routes.live_document import MAX_KEYS, LiveDocument, StoreState, build_live
from gateway.routing.views import DeploymentView, RouterView, RouteView
from gateway.telemetry.live import Live
from gateway.telemetry.usage import KeyUsage

COUNTS = ("requests", "errors", "tokens", "queue_depth")
TIMES = ("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s")


def series(seconds: int, **values: Any) -> dict[str, object]:
    """A snapshot in which nothing happened, but for `values`."""
    still: dict[str, object] = {name: [0] * seconds for name in COUNTS}
    unknown: dict[str, object] = {name: [None] * seconds for name in TIMES}
    return {"until": 1000.0, "step_s": 1, **still, **unknown, **values}


def deployment(name: str, **values: Any) -> DeploymentView:
    usual = {
        "breaker": "closed",
        "error_rate": 0.0,
        "outstanding": 0,
        "ttft_s": 0.0,
        "is_healthy": True,
        "is_ready": True,
        "paused_s": 0.0,
    }
    return DeploymentView(name=name, **{**usual, **values})


def build(**values: Any) -> LiveDocument:
    usual = {
        "at": 1001.5,
        "is_draining": False,
        "series": series(0),
        "router": RouterView(deployments=(), routes=(), retry_tokens=20.0),
        "healths": {},
        "queues": {},
        "usage": [],
        "usage_since": 0.0,
        "stores": [],
    }
    return build_live(**{**usual, **values})


def test_rates_are_means_of_ten_seconds_and_errors_are_those_of_a_minute() -> None:
    requests = [100] * 40 + [1] * 50 + [4] * 10
    recent = build(series=series(100, requests=requests, errors=[9] * 40 + [0] * 59 + [3], tokens=[0] * 90 + [50] * 10)).recent
    assert (recent.requests_per_s, recent.tokens_per_s) == (4.0, 50.0)
    assert (recent.requests, recent.errors) == (90, 3)


def test_a_gateway_that_has_just_started_divides_by_the_seconds_it_has() -> None:
    assert build(series=series(3, requests=[0, 4, 2])).recent.requests_per_s == 2.0
    assert build().recent.requests_per_s == 0.0


def test_times_are_those_of_the_last_ten_busy_seconds() -> None:
    p50 = [9.0] * 20 + [0.1, None] * 9 + [0.5]
    recent = build(series=series(len(p50), ttft_p50_s=p50, ttft_p95_s=[s and s * 2 for s in p50])).recent
    assert (recent.ttft_p50_s, recent.ttft_p95_s) == (0.1, 1.0)
    assert (recent.itl_p50_s, recent.itl_p95_s) == (None, None)


def test_percentiles_are_rounded_to_microseconds() -> None:
    assert build(series=series(2, itl_p50_s=[None, 0.0123456789])).series.itl_p50_s == [None, 0.012346]


def test_a_deployment_joins_what_it_says_with_what_routing_thinks() -> None:
    views = (deployment("fast", outstanding=2, ttft_s=0.25), deployment("gone", breaker="open", error_rate=0.5, paused_s=3.0))
    healths = {"fast": Health(state="degraded", detail="slow disk", running=2, waiting=1, slots=4)}
    document = build(router=RouterView(deployments=views, routes=(), retry_tokens=1.0), healths=healths)
    fast, gone = document.deployments
    assert (fast.state, fast.detail, fast.running, fast.waiting, fast.slots) == ("degraded", "slow disk", 2, 1, 4)
    assert (fast.outstanding, fast.ttft_s) == (2, 0.25)
    assert (gone.state, gone.breaker, gone.error_rate, gone.ttft_s, gone.paused_s) == ("loading", "open", 0.5, None, 3.0)


def test_a_route_has_the_figures_of_its_queue() -> None:
    routes = (RouteView(name="chat", deployments=("a", "b")), RouteView(name="other", deployments=("c",)))
    waiting, refused = {"interactive": 1, "standard": 2, "batch": 0}, {"full": 3, "timeout": 1}
    queue = QueueSnapshot(running=5, capacity=8, waiting=waiting, admitted=100, refused=refused)  # type: ignore[arg-type]
    document = build(router=RouterView(deployments=(), routes=routes, retry_tokens=1.0), queues={"chat": queue})
    chat, other = document.routes
    assert (chat.deployments, chat.running, chat.capacity, chat.waiting, chat.refused) == (("a", "b"), 5, 8, 3, 4)
    assert (other.running, other.capacity, other.waiting, other.refused, other.canary) == (0, 0, 0, 0, None)
    assert (document.recent.running, document.recent.waiting) == (5, 3)


def test_keys_beyond_the_shown_ones_are_summed() -> None:
    keys = [KeyUsage(key_id=f"k{n}", name="n", requests=1, tokens=2, cost_usd=0.5) for n in range(MAX_KEYS + 3)]
    assert build(usage=keys).usage.others == KeyUsage(key_id="", name="", requests=3, tokens=6, cost_usd=1.5)
    shown = build(usage=keys[:MAX_KEYS]).usage
    assert (len(shown.keys), shown.others) == (MAX_KEYS, None)


def test_what_the_telemetry_keeps_is_what_the_document_takes() -> None:
    now = 100.0
    live = Live(lambda: now, lambda: 5000.0)
    live.first_token(100.2, 0.2, 3)
    live.ended(100.5, failed=True)
    now = 102.0
    document = build(series=live.snapshot(), stores=[StoreState(name="SQLite", state="up")])
    assert (document.series.requests, document.series.errors, document.series.tokens) == ([1, 0], [1, 0], [3, 0])
    assert document.recent.ttft_p50_s == pytest.approx(0.2, rel=0.06)
    assert msgspec.json.decode(msgspec.json.encode(document), type=LiveDocument) == document


def test_a_full_document_is_small() -> None:
    full = series(300, **{name: [123] * 300 for name in COUNTS}, **{name: [0.1234567891] * 300 for name in TIMES})
    assert len(msgspec.json.encode(build(series=full))) < 20_000
