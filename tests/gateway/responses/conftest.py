"""The Responses and Conversations APIs on a loopback port: real dispatch, real stores, scripted backends."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from litestar import Litestar

from backends.errors import Failed
from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeCall, FakeReply
from backends.protocol import Backend
from backends.types import Delta, GenerateRequest
from gateway.admission.config import AdmissionConfig
from gateway.admission.queue import Queue
from gateway.call import Call
from gateway.context.config import ConversationConfig
from gateway.context.conversations import Conversations
from gateway.context.responses_store import StoredResponses
from gateway.context.sqlite_logs import SqliteLogs
from gateway.dispatch.catalog import Catalog
from gateway.dispatch.dispatch import Dispatch
from gateway.errors import EXCEPTION_HANDLERS
from gateway.identity import Identity
from gateway.limits.limiter import UNLIMITED, Reservation
from gateway.middleware.asgi import ASGIApp, Receive, Scope, Send
from gateway.middleware.body import Body
from gateway.routes.conversations import conversation_routes
from gateway.routes.responses import responses_routes
from gateway.routes.responses_state import ResponsesState
from gateway.routing.router import Router
from gateway.store.sqlite import Database
from gateway.telemetry.telemetry import Telemetry

LONG = "The quick brown fox jumps over the lazy dog. " * 20
CALLS = (FakeCall("weather", '{"city": "Köln"}'), FakeCall("clock"))


class Recorder(FakeBackend):
    """Remembers what it was asked, and thinks before it answers."""

    def __init__(self, name: str, model: FakeModel) -> None:
        super().__init__(name, model)
        self.asked: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta]:
        self.asked.append(request)
        yield Delta(reasoning="Hm.")
        async for delta in super().generate(request):
            yield delta


class BreaksAfterText(FakeBackend):
    """Breaks in a way that the contract does not know, once a stream has begun."""

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta]:
        yield Delta(text="Hel", tokens=3)
        raise Failed("The engine broke.")


class Unlimited:
    """Lets everything pass."""

    async def reserve(self, identity: Identity, call: Call) -> Reservation:
        return UNLIMITED

    async def close(self) -> None: ...


def scripted() -> dict[str, Backend]:
    """The models of the server."""
    models = {
        "plain": FakeModel(replies=(FakeReply(text="Hello, 世界!"), FakeReply(text="second"), FakeReply(text="third"))),
        "tools": FakeModel(replies=(FakeReply(text="Let me see.", tool_calls=CALLS), FakeReply(text="Done."))),
        "json": FakeModel(replies=(FakeReply(text='{"name": "Ada", "age": 36}'),)),
        "small": FakeModel(context=64),
        "slow": FakeModel(replies=(FakeReply(text=LONG),), token_delay_s=0.01),
        "failed-first": FakeModel(error="Failed"),
        "full": FakeModel(error="Overloaded"),
    }
    backends: dict[str, Backend] = {name: FakeBackend(name, model) for name, model in models.items()}
    backends["recorder"] = Recorder("recorder", FakeModel(replies=(FakeReply(text="Yes."),)))
    backends["breaks"] = BreaksAfterText("breaks", FakeModel())
    return backends


def create_app(backends: dict[str, Backend], database: Database, config: ConversationConfig, ping_s: float) -> ASGIApp:
    """The routes under test, and around them what they need of the rest. The key is the tenant."""
    router = Router({}, backends)
    queues = {name: Queue(AdmissionConfig()) for name in backends}
    dispatch = Dispatch(router, Catalog(router, backends), queues, Unlimited(), Telemetry(backends), {})
    conversations = Conversations(SqliteLogs(database, "conversations", max_bytes=1 << 30), config)
    responses = StoredResponses(SqliteLogs(database, "responses", max_bytes=1 << 30), config)
    state = ResponsesState(responses, conversations)
    routes = (*responses_routes(lambda: dispatch, state, ping_s), *conversation_routes(state))
    app: Any = Litestar(route_handlers=routes, exception_handlers=EXCEPTION_HANDLERS, openapi_config=None, logging_config=None)
    inner = Body(app, max_bytes=1 << 20, timeout_s=10)

    async def identified(scope: Scope, receive: Receive, send: Send) -> None:
        keys = [value.decode() for name, value in scope["headers"] if name == b"authorization"]
        scope.setdefault("state", {})["identity"] = Identity(key_id="k", tenant=keys[0] if keys else "")
        await inner(scope, receive, send)

    return identified


class Server:
    """One such application in a thread of its own. `url` is its base."""

    def __init__(self, *, config: ConversationConfig | None = None, ping_s: float = 15.0) -> None:
        self.backends = scripted()
        self.database = Database(":memory:")
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        app = create_app(self.backends, self.database, config or ConversationConfig(), ping_s)
        self._server = uvicorn.Server(uvicorn.Config(app, http="httptools", log_config=None, lifespan="off"))
        self._server.capture_signals = _no_signals  # type: ignore[method-assign]
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

    def until_idle(self, name: str) -> None:
        """Wait until a backend serves nobody any more."""
        backend = self.backends[name]
        assert isinstance(backend, FakeBackend)
        tick = threading.Event()
        for _ in range(1000):
            if not backend._running:
                return
            tick.wait(0.01)
        pytest.fail(f"{name} is still busy")

    async def _serve(self) -> None:
        asyncio.get_running_loop().call_soon(self._ready.set)
        await self._server.serve([self._socket])
        for backend in self.backends.values():
            await backend.close()
        await self.database.close()


def _no_signals() -> AbstractContextManager[None]:
    return nullcontext()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


@pytest.fixture(scope="session")
def open_sdk(server: Server) -> Iterator[Callable[[str], openai.OpenAI]]:
    """Makes the official client of a tenant."""
    clients: list[openai.OpenAI] = []

    def make(key: str) -> openai.OpenAI:
        clients.append(openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=20))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def sdk(open_sdk: Callable[[str], openai.OpenAI]) -> openai.OpenAI:
    return open_sdk("ann")


@pytest.fixture
def recorder(server: Server) -> Recorder:
    backend = server.backends["recorder"]
    assert isinstance(backend, Recorder)
    backend.asked.clear()
    return backend
