"""A real server on a loopback port, with scripted backends, for tests that talk HTTP."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import httpx
import openai
import pytest
import uvicorn

from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeCall, FakeReply
from backends.protocol import Backend
from gateway.app import create_app
from gateway.config import ServerConfig, Settings
from gateway.http_protocol import BoundedHttp
from gateway.services import Services
from gateway.store.config import MEMORY, StoreConfig

T = TypeVar("T")

TEXT = "Hello, 世界! 🧑‍🚀\u2028ok"
LONG = "The quick brown fox jumps over the lazy dog. " * 40


class BuggyBackend(FakeBackend):
    """Breaks in a way that the contract does not know."""

    async def generate(self, request):
        if request.stop:
            async for delta in super().generate(request):
                yield delta
                break
        raise ValueError("secret stack details")
        yield

    async def embed(self, request):
        raise ValueError("secret stack details")


class Gateway:
    """A gateway in a thread of its own.

    Args:
        backends: by public name; they live in the server's event loop.
    """

    def __init__(self, backends: dict[str, Backend], *, ping_interval_s: float = 15.0) -> None:
        self.backends = backends
        self._socket = socket.create_server(("127.0.0.1", 0))
        settings = Settings(server=ServerConfig(ping_interval_s=ping_interval_s), models={}, store=StoreConfig(path=MEMORY))
        self.services = services = Services(settings, backends, {})
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(create_app(services), http=BoundedHttp, loop="uvloop", log_config=None, lifespan="off")
        self._server = uvicorn.Server(config)
        self._server.capture_signals = lambda: _nothing()  # type: ignore[method-assign]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Gateway":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        await self.services.start()
        asyncio.get_running_loop().call_soon(self._ready.set)
        await self._server.serve([self._socket])
        await self.services.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def tasks(self) -> int:
        """How many tasks live in the server's loop, but for the one that counts."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return self.call(count())

    def load(self, name: str) -> tuple[int, int]:
        """Running and waiting requests of a backend."""
        health = self.call(self.backends[name].health())
        return health.running, health.waiting

    def eventually(self, condition: Callable[[], bool], *, within_s: float = 10.0) -> None:
        """Wait for a condition that must come true."""
        tick = threading.Event()
        for _ in range(int(within_s / 0.01)):
            if condition():
                return
            tick.wait(0.01)
        pytest.fail("the condition did not come true in time")


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def scripted() -> dict[str, Backend]:
    """The models of the shared server."""
    calls = (FakeCall("weather", '{"city": "Köln"}'), FakeCall("clock"))
    models = {
        "fake": FakeModel(replies=(FakeReply(text=TEXT), FakeReply(text="second"), FakeReply(text="third"))),
        "plain": FakeModel(replies=(FakeReply(text="Hi you"),), dimensions=0),
        "tools": FakeModel(replies=(FakeReply(tool_calls=calls), FakeReply(text="Done."))),
        "json": FakeModel(replies=(FakeReply(text='{"name": "Ada", "age": 36}'),)),
        "small": FakeModel(context=64),
        "slow": FakeModel(replies=(FakeReply(text=LONG),), token_delay_s=0.01, slots=64),
        "one-slot": FakeModel(replies=(FakeReply(text=LONG),), token_delay_s=0.01, slots=1),
        "never": FakeModel(token_delay_s=60, slots=64),
        "org/model/7b": FakeModel(),
        "failed-first": FakeModel(error="Failed"),
        "timed-out": FakeModel(error="TimedOut"),
        "full": FakeModel(error="Overloaded"),
        "down": FakeModel(error="Unavailable"),
        "failed-later": FakeModel(error="Failed", error_after_tokens=3),
    }
    backends: dict[str, Backend] = {name: FakeBackend(name, model) for name, model in models.items()}
    backends["buggy"] = BuggyBackend("buggy", FakeModel())
    return backends


@pytest.fixture(scope="session")
def gateway() -> Iterator[Gateway]:
    with Gateway(scripted()) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=20) as client:
        yield client


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=20) as sdk:
        yield sdk
