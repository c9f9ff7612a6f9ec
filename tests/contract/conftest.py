"""The implementations that must keep the contract of `backends.protocol`.

Each is a factory: an async context manager that yields a running backend, the name of a model that chats and completes, and the
number of its slots. Whether it embeds is what its card says. The suite asks for nothing that only one model would say.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from backends.child.parent.hosted import HostedBackend
from backends.engine.backend import EngineBackend
from backends.engine.config import EngineConfig
from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeReply
from backends.protocol import Backend
from backends.remote.backend import RemoteBackend
from backends.remote.config import RemoteConfig
from edge.config import EdgeConfig
from edge.engine import EdgeBackend
from gateway.config_sources.embedded import MISSING, find_embedded_model
from tests.gateway.wire.conftest import Gateway

FOX = "The quick brown fox jumps over the lazy dog; 世界 and 🧑‍🚀 watch. " * 8


@dataclass
class Subject:
    """A backend under test, and the name of its model."""

    backend: Backend
    model: str
    slots: int


@asynccontextmanager
async def fake() -> AsyncIterator[Subject]:
    model = FakeModel(replies=(FakeReply(text=FOX),), token_delay_s=0.0005, slots=4, context=2048)
    backend = FakeBackend("scripted", model)
    yield Subject(backend, "scripted", model.slots)
    await backend.close()


def gguf() -> AbstractAsyncContextManager[Subject]:
    return hosted(EdgeBackend("smollm2", EdgeConfig(path=embedded(), slots=4, context=2048)), slots=4)


def torch() -> AbstractAsyncContextManager[Subject]:
    config = EngineConfig(path=embedded(), slots=4, context=1024)
    return hosted(EngineBackend("smollm2", config), slots=4)


def embedded() -> str:
    path = find_embedded_model()
    assert path is not None, MISSING
    return str(path)


@asynccontextmanager
async def hosted(backend: HostedBackend, slots: int) -> AsyncIterator[Subject]:
    await backend.start()
    async with asyncio.timeout(120):
        while (await backend.health()).state == "loading":  # noqa: ASYNC110 - another process loads
            await asyncio.sleep(0.01)
    health = await backend.health()
    assert health.state == "ready", health.detail
    yield Subject(backend, "smollm2", slots)
    await backend.close()


@asynccontextmanager
async def remote() -> AsyncIterator[Subject]:
    """A backend that speaks to a real gateway over HTTP, with the scripted engine behind it."""
    model = FakeModel(replies=(FakeReply(text=FOX),), token_delay_s=0.0005, slots=4, context=2048)
    upstream = Gateway({"scripted": FakeBackend("scripted", model)})
    await asyncio.to_thread(upstream.__enter__)
    backend = RemoteBackend("public", RemoteConfig(url=upstream.url, model="scripted"))
    await backend.check()
    yield Subject(backend, "public", model.slots)
    await backend.close()
    await asyncio.to_thread(upstream.__exit__)


FACTORIES: dict[str, Callable[[], AbstractAsyncContextManager[Subject]]] = {
    "fake": fake,
    "gguf": gguf,
    "torch": torch,
    "remote": remote,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=FACTORIES)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """One backend for all tests, which leave it idle: an engine takes seconds to start."""
    async with FACTORIES[request.param]() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", params=FACTORIES)
async def own(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """A backend that the test may use up."""
    async with FACTORIES[request.param]() as running:
        yield running


# The wire of the OpenAI API names tokens by their text only, so nobody can learn an id from an answer.
NEEDS_TOKEN_IDS = "test_a_stop_token_id_ends_the_answer_before_its_text[remote]"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    dropped = [item for item in items if item.name == NEEDS_TOKEN_IDS]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
