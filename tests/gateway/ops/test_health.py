"""Readiness follows the models."""

import asyncio

import httpx
import pytest

from backends.errors import Unavailable
from backends.fake import FakeBackend, FakeModel
from backends.types import Health
from gateway.app import create_app
from gateway.config import ServerConfig, Settings
from gateway.services import Services
from gateway.store.config import MEMORY, StoreConfig


class Slow(FakeBackend):
    """A model that loads until it is let go."""

    def __init__(self, name: str) -> None:
        super().__init__(name, FakeModel())
        self.go = asyncio.Event()
        self.has_started = asyncio.Event()
        self.state = "loading"
        self.closed = 0

    async def start(self) -> None:
        await self.go.wait()
        self.state = "ready"
        self.has_started.set()

    async def health(self) -> Health:
        return Health(state=self.state, slots=1)

    async def close(self) -> None:
        self.closed += 1
        await super().close()


class Broken(Slow):
    """A model that cannot start."""

    async def start(self) -> None:
        raise Unavailable("the file is damaged")


class Stuck(Slow):
    """A model that cannot close."""

    async def close(self) -> None:
        raise RuntimeError("cannot")


def services_of(**backends: Slow) -> Services:
    settings = Settings(server=ServerConfig(), models={}, store=StoreConfig(path=MEMORY))
    return Services(settings, dict(backends), {name: backend.start for name, backend in backends.items()})


async def ask(services: Services, path: str = "/health/ready") -> httpx.Response:
    transport = httpx.ASGITransport(app=create_app(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path)


async def test_readiness_waits_for_all_models_while_liveness_does_not():
    a, b = Slow("a"), Slow("b")
    services = services_of(a=a, b=b)
    starting = asyncio.create_task(services.start())
    a.go.set()
    await a.has_started.wait()
    response = await ask(services)
    assert response.status_code == 503
    assert response.json()["status"] == "loading"
    assert response.json()["models"]["a"]["state"] == "ready"
    assert response.json()["models"]["b"] == {"state": "loading", "detail": "", "running": 0, "waiting": 0, "slots": 1}
    assert (await ask(services, "/health/live")).status_code == 200
    b.go.set()
    await starting
    for path in ("/health/ready", "/health"):
        response = await ask(services, path)
        assert (response.status_code, response.json()["status"]) == (200, "ready")


async def test_model_that_cannot_start_leaves_the_others_serving_and_readiness_says_why():
    a, b = Slow("a"), Broken("b")
    services = services_of(a=a, b=b)
    a.go.set()
    healths = await services.start()
    assert healths["a"].state == "ready"
    response = await ask(services)
    assert (response.status_code, response.json()["status"]) == (503, "unavailable")
    assert response.json()["models"]["b"]["detail"] == "the file is damaged"


@pytest.mark.parametrize(("state", "status"), [("degraded", 200), ("failed", 503), ("stopped", 503), ("loading", 503)])
async def test_readiness_follows_the_state_of_a_running_model(state, status):
    backend = Slow("a")
    backend.state = state
    services = services_of(a=backend)
    assert (await ask(services)).json()["status"] == "loading", "the keys have not been read yet"
    await services.stores.start()
    assert (await ask(services)).status_code == status
    await services.stores.close()


async def test_draining_gateway_is_not_ready():
    backend = Slow("a")
    backend.state = "ready"
    services = services_of(a=backend)
    services.drain.begin()
    response = await ask(services)
    assert (response.status_code, response.json()["status"]) == (503, "draining")


async def test_every_backend_is_closed_also_when_one_cannot():
    a, b, c = Slow("a"), Stuck("b"), Slow("c")
    await services_of(a=a, b=b, c=c).close()
    assert (a.closed, c.closed) == (1, 1)
