"""Files and batches on a loopback port, whose lines go through a whole gateway with scripted models. The key is the tenant."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import openai
import pytest
import uvicorn
from litestar import Litestar

from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeReply
from gateway.app import create_app
from gateway.batches.asgi_line import AsgiLine
from gateway.batches.batches import Batches
from gateway.batches.config import BatchesConfig
from gateway.config import ServerConfig, Settings
from gateway.errors import EXCEPTION_HANDLERS
from gateway.http_protocol import BoundedHttp
from gateway.identity import Identity
from gateway.middleware.asgi import ASGIApp, Receive, Scope, Send
from gateway.middleware.body import Body
from gateway.routes.batches import batch_routes
from gateway.routes.files import file_routes
from gateway.services import Services
from gateway.store.config import MEMORY, StoreConfig
from gateway.store.sqlite import Database

CONFIG = BatchesConfig(max_file_bytes=1 << 20, max_tenant_bytes=3 << 20, max_tenant_files=20, max_tenant_batches=5)


class Server:
    """One such server in a thread of its own. `url` is its base."""

    def __init__(self, path: Path) -> None:
        backends = {"fake": FakeBackend("fake", FakeModel(replies=(FakeReply(text="Hello, 世界!\u2028"),)))}
        settings = Settings(server=ServerConfig(), models={}, store=StoreConfig(path=MEMORY))
        self.services = Services(settings, backends, {})
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._database = Database(str(path / "baton.db"))
        self.batches = Batches(self._database, CONFIG, identify=lambda identity: identity)
        app = _app(self.batches)
        self._server = uvicorn.Server(uvicorn.Config(app, http=BoundedHttp, log_config=None, lifespan="off"))
        self._server.capture_signals = nullcontext  # type: ignore[method-assign]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))

    def __enter__(self) -> "Server":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._socket.close()

    async def _serve(self) -> None:
        await self.services.start()
        self.batches.start(AsgiLine(create_app(self.services)))  # type: ignore[arg-type]
        asyncio.get_running_loop().call_soon(self._ready.set)
        await self._server.serve([self._socket])
        await self.batches.close()
        await self.services.close()
        await self._database.close()


def _app(batches: Batches) -> ASGIApp:
    routes = [*file_routes(batches.files), *batch_routes(batches.store)]
    app: Any = Litestar(
        route_handlers=routes,
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
    )
    inner = Body(app, max_bytes=4 << 20, timeout_s=10)

    async def identified(scope: Scope, receive: Receive, send: Send) -> None:
        keys = [value.decode() for name, value in scope["headers"] if name == b"authorization"]
        scope.setdefault("state", {})["identity"] = Identity(key_id="k", tenant=keys[0] if keys else "")
        await inner(scope, receive, send)

    return identified


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("batches")) as running:
        yield running


@pytest.fixture
def open_sdk(server: Server) -> Iterator[Callable[[str], openai.OpenAI]]:
    """Makes the official client of a tenant that only this test has."""
    clients: list[openai.OpenAI] = []
    test = uuid4().hex

    def make(name: str) -> openai.OpenAI:
        clients.append(openai.OpenAI(base_url=f"{server.url}/v1", api_key=f"{name}-{test}", max_retries=0, timeout=20))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def sdk(open_sdk: Callable[[str], openai.OpenAI]) -> openai.OpenAI:
    return open_sdk("ann")


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client
