"""A line that goes through the application without a socket."""

import asyncio
import json

import pytest

from backends.fake import FakeBackend, FakeModel
from gateway.app import create_app
from gateway.batches.asgi_line import AsgiLine
from gateway.config import ServerConfig, Settings
from gateway.identity import Identity
from gateway.middleware.asgi import Receive, Scope, Send
from gateway.services import Services
from gateway.store.config import MEMORY, StoreConfig

ANN = Identity(key_id="k", tenant="ann")
CHAT = "/v1/chat/completions"


def body(model: str) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()


@pytest.fixture
async def services():
    backends = {name: FakeBackend(name, FakeModel(token_delay_s=delay)) for name, delay in (("fake", 0.0), ("never", 60.0))}
    built = Services(Settings(server=ServerConfig(), models={}, store=StoreConfig(path=MEMORY)), backends, {})
    await built.start()
    yield built
    await built.close()


async def test_a_request_is_answered_as_over_http(services: Services) -> None:
    line = AsgiLine(create_app(services))  # type: ignore[arg-type]
    status, answer = await line(ANN, CHAT, body("fake"), "req_1")
    assert (status, json.loads(answer)["object"]) == (200, "chat.completion")
    status, answer = await line(ANN, CHAT, b"nope", "req_1")
    assert (status, json.loads(answer)["error"]["type"]) == (400, "invalid_request_error")


async def test_a_request_that_is_cancelled_lets_go_of_its_backend(services: Services) -> None:
    line = AsgiLine(create_app(services))  # type: ignore[arg-type]
    asked = asyncio.create_task(line(ANN, CHAT, body("never"), "req_1"))
    for _ in range(1000):
        if (await services.backends["never"].health()).running:
            break
        await asyncio.sleep(0.005)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await services.backends["never"].health()).running == 0


async def test_the_application_learns_who_asks_and_that_it_can_wait() -> None:
    seen: Scope = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.update(scope)
        assert (await receive())["body"] == b"{}"
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    assert await AsgiLine(app)(ANN, CHAT, b"{}", "req_1") == (201, b"ab")  # type: ignore[arg-type]
    assert seen["state"] == {"identity": ANN, "tenant": "ann", "request_id": "req_1"}
    assert (b"x-baton-priority", b"batch") in seen["headers"]
    assert (b"x-request-id", b"req_1") in seen["headers"]
