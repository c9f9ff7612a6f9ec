"""A gateway that serves the real console and answers its admin requests as a test says. Listens in a thread of this process."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar, Request, Response, delete, get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath

from backends.types import Health
from gateway.admission.queue import QueueSnapshot
from gateway.console import console_route, read_console
from gateway.routes.live_document import LiveDocument, StoreState, build_live
from gateway.routing.canary import CanaryView
from gateway.routing.views import DeploymentView, RouterView, RouteView
from gateway.telemetry.usage import KeyUsage

NOW = 1_800_014_400  # 2027-01-15 12:00 UTC


def canary(**values: Any) -> CanaryView:
    usual = {
        "deployment": "llama-next",
        "state": "running",
        "percent": 25.0,
        "reason": "",
        "attempts": 214,
        "error_rate": 0.004,
        "ttft_p95_s": 0.41,
        "itl_p95_s": 0.021,
        "baseline_attempts": 1912,
        "baseline_error_rate": 0.003,
        "baseline_ttft_p95_s": 0.39,
        "baseline_itl_p95_s": 0.02,
    }
    return CanaryView(**{**usual, **values})


def deployment(name: str, **values: Any) -> DeploymentView:
    usual = {
        "breaker": "closed",
        "error_rate": 0.003,
        "outstanding": 5,
        "ttft_s": 0.18,
        "is_healthy": True,
        "is_ready": True,
        "paused_s": 0.0,
    }
    return DeploymentView(name=name, **{**usual, **values})


def series(seconds: int = 300) -> dict[str, object]:
    """Traffic that rises and falls, with a short outage four minutes in."""
    waves = [1 + 0.5 * math.sin(n / 30) + 0.12 * math.sin(n * 1.7) for n in range(seconds)]
    outage = [200 < n < 225 for n in range(seconds)]
    ttft: list[float | None] = [0.12 + 0.05 * wave for wave in waves]
    ttft[60:75] = [None] * 15
    return {
        "until": NOW,
        "step_s": 1,
        "requests": [int(12 * wave) for wave in waves],
        "errors": [int(5 * wave) if bad else 0 for wave, bad in zip(waves, outage, strict=True)],
        "tokens": [int(900 * wave) for wave in waves],
        "queue_depth": [int(14 * wave) if bad else 0 for wave, bad in zip(waves, outage, strict=True)],
        "ttft_p50_s": ttft,
        "ttft_p95_s": [value and value * 2.2 for value in ttft],
        "itl_p50_s": [0.011 + 0.002 * wave for wave in waves],
        "itl_p95_s": [0.019 + 0.005 * wave for wave in waves],
    }


CHAT = RouteView(name="chat", deployments=("llama-a", "llama-b"), canary=canary())
EMBED = RouteView(name="embed", deployments=("embedder",))
DEPLOYMENTS = (
    deployment("llama-a"),
    deployment("llama-b", breaker="open", error_rate=0.41, outstanding=0, ttft_s=0.0, is_healthy=False, paused_s=12.3),
    deployment("llama-next", breaker="half_open", outstanding=2),
    deployment("embedder", error_rate=0.0, outstanding=0),
)


def live(routes: tuple[RouteView, ...] = (CHAT, EMBED), **values: Any) -> LiveDocument:
    """A gateway on a normal day, but for `values`."""
    waiting = {"interactive": 0, "standard": 2, "batch": 1}
    queue = QueueSnapshot(running=17, capacity=32, waiting=waiting, admitted=999, refused={"full": 12})  # type: ignore[arg-type]
    keys = [
        KeyUsage(key_id="key_00000000000000aa", name="search team", requests=18_402, tokens=12_345_678, cost_usd=41.5),
        KeyUsage(key_id="key_00000000000000bb", name="nightly batch", requests=260, tokens=987_654, cost_usd=0.0312),
        KeyUsage(key_id="", name="anonymous", requests=3, tokens=120),
    ]
    usual = {
        "at": NOW + 0.4,
        "is_draining": False,
        "series": series(),
        "router": RouterView(deployments=DEPLOYMENTS, routes=routes, retry_tokens=20.0),
        "healths": {
            "llama-a": Health(state="ready", slots=16, running=5),
            "llama-b": Health(state="failed", detail="no answer within 3 s"),
            "llama-next": Health(state="degraded", slots=16, running=2, waiting=1),
            "embedder": Health(state="loading"),
        },
        "queues": {"chat": queue},
        "usage": keys,
        "usage_since": NOW - 12 * 3600,
        "stores": [
            StoreState(name="SQLite", state="up"),
            StoreState(name="Redis", state="down", detail="redis://cache:6379: TimeoutError"),
        ],
    }
    return build_live(**{**usual, **values})


def key(id: int, name: str, **values: Any) -> dict[str, Any]:
    """A key as the admin API lists it."""
    allowance = {
        "requests_per_minute": 0,
        "tokens_per_minute": 0,
        "concurrency": 0,
        "budget_usd": 0.0,
        "budget_period": "month",
    }
    usual = {
        "id": f"key_{id:016x}",
        "object": "key",
        "prefix": f"sk-baton-{id:08d}",
        "name": name,
        "tenant": name.replace(" ", "-"),
        "models": None,
        "priority": "standard",
        "weight": 1.0,
        "allowance": allowance,
        "is_admin": False,
        "state": "active",
        "created_at": NOW - 1000 + id,
        "expires_at": None,
        "revoked_at": None,
        "last_used_at": None,
    }
    return {**usual, **values}


class Script:
    """What the gateway answers, and what it was asked. Set and read by the test, used by the server's thread."""

    def __init__(self) -> None:
        self.live = live()
        self.keys: list[dict[str, Any]] = []
        self.refusal: tuple[int, str, str] | None = None
        self.on_order: Callable[[str, dict[str, Any]], CanaryView] = lambda route, body: canary()
        self.polls = 0
        self.asked: list[tuple[str, str, Any]] = []
        self.bearers: list[str | None] = []

    def check(self, request: Request[Any, Any, Any]) -> None:
        """Note who asks; refuse when the test says so."""
        self.bearers.append(request.headers.get("authorization"))
        if self.refusal is not None:
            raise HTTPException(self.refusal[1], status_code=self.refusal[0], extra={"code": self.refusal[2]})


def _refused(_: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    code = error.extra["code"] if isinstance(error.extra, dict) else None
    told = {"message": error.detail, "type": "invalid_request_error", "param": None, "code": code}
    return Response({"error": told}, status_code=error.status_code)


def _routes(script: Script) -> list[Any]:
    @get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "chat", "object": "model", "created": 0, "owned_by": "baton"}]}

    @get("/health/ready")
    async def ready() -> dict[str, Any]:
        return {"status": "ready", "models": {"chat": {"state": "ready", "running": 0, "waiting": 0, "slots": 4, "detail": ""}}}

    @get("/admin/live")
    async def figures(request: Request[Any, Any, Any]) -> Response[bytes]:
        script.polls += 1
        script.check(request)
        return Response(msgspec.json.encode(script.live), media_type="application/json")

    @post("/admin/canary/{route:path}", status_code=200)
    async def steer(request: Request[Any, Any, Any], route: FromPath[str]) -> Response[bytes]:
        script.check(request)
        body = await request.json()
        script.asked.append(("POST", route, body))
        return Response(msgspec.json.encode(script.on_order(route, body)), media_type="application/json")

    @get("/admin/keys")
    async def list_keys(request: Request[Any, Any, Any]) -> dict[str, Any]:
        script.check(request)
        return {"object": "list", "data": script.keys}

    @post("/admin/keys", status_code=200)
    async def create(request: Request[Any, Any, Any]) -> dict[str, Any]:
        script.check(request)
        body = await request.json()
        script.asked.append(("POST", "/admin/keys", body))
        made = key(len(script.keys) + 1, **body)
        script.keys.append(made)
        return {**made, "key": made["prefix"] + "-and-the-secret-rest"}

    @delete("/admin/keys/{id:str}", status_code=200)
    async def revoke(request: Request[Any, Any, Any], id: FromPath[str]) -> dict[str, Any]:
        script.check(request)
        script.asked.append(("DELETE", id, None))
        found = next(key for key in script.keys if key["id"] == id)
        found.update(state="revoked", revoked_at=NOW)
        return found

    return [models, ready, figures, steer, list_keys, create, revoke, console_route(read_console())]


@contextmanager
def serve_script(script: Script) -> Iterator[str]:
    """Listen on a free port; gives the URL."""
    app = Litestar(_routes(script), exception_handlers={HTTPException: _refused}, openapi_config=None, logging_config=None)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, name="scripted admin")
    thread.start()
    try:
        limit = time.monotonic() + 10
        while not server.started:
            assert time.monotonic() < limit, "the scripted gateway did not start"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
