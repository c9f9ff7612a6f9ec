"""A gateway in the event loop of its test, built from a configuration file as a process builds it.

So a test sees both sides of one moment: what the client has read, what waits in a queue, and what the upstream has received.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gateway.app import create_app
from gateway.config import load_settings
from gateway.http_protocol import BoundedHttp
from gateway.services import Services, build_services

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]

_TICK_S = 0.005
_TICKS = 4000


class Gateway:
    """A running gateway.

    Attributes:
        http: a client of it, without a key.
    """

    def __init__(self, services: Services, port: int, http: httpx.AsyncClient) -> None:
        self.services, self.port, self.http = services, port, http
        self.url = f"http://127.0.0.1:{port}"

    async def chat(self, model: str = "chat", *, content: str = "hi", key: str = "", **fields: Any) -> httpx.Response:
        """Ask and read the whole answer. Fields that begin with `x_` are headers."""
        headers = {name.replace("_", "-"): fields.pop(name) for name in list(fields) if name.startswith("x_")}
        if key:
            headers["authorization"] = f"Bearer {key}"
        body = {"model": model, "messages": [{"role": "user", "content": content}]} | fields
        return await self.http.post(CHAT, json=body, headers=headers)

    def waiting(self, model: str) -> int:
        """How many requests wait in the queue of a model."""
        return sum(self.services.queues[model].snapshot().waiting.values())

    async def create_key(self, **fields: Any) -> str:
        """A new key, made by the administrator's, which is `boss`."""
        made = await self.http.post("/admin/keys", json=fields, headers={"authorization": "Bearer boss"})
        assert made.status_code in (200, 201), made.text
        key: str = made.json()["key"]
        return key


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is true, at most 20 s; how long is no part of what is tested."""
    for _ in range(_TICKS):
        if condition():
            return
        await asyncio.sleep(_TICK_S)
    raise AssertionError("it never became true")


async def until_status(http: httpx.AsyncClient, url: str, status: int, **headers: str) -> None:
    """Wait until a GET is answered with this status."""
    for _ in range(_TICKS):
        if (await http.get(url, headers=headers)).status_code == status:
            return
        await asyncio.sleep(_TICK_S)
    raise AssertionError(f"{url} never answered {status}")


@asynccontextmanager
async def serving(folder: Path, text: str, **variables: str) -> AsyncIterator[Gateway]:
    """Serve this configuration on a free port. Its database is in `folder`."""
    file = folder / "gateway.toml"
    file.write_text(text if "[store]" in text else f'{text}\n[store]\npath = "baton.db"\n')
    services = build_services(load_settings(file, variables))
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(services), http=BoundedHttp, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(server.serve([listener]))
    port = listener.getsockname()[1]
    try:
        await services.start()
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, limits=limits) as http:
            yield Gateway(services, port, http)
    finally:
        server.should_exit = True
        await services.close()
        await serving
        listener.close()
