"""Reranking through a whole gateway: bodies pass unchanged to a server that can, and are refused everywhere else."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

import gateway.app
from backends.fake import FakeBackend, FakeModel
from backends.protocol import Backend
from backends.remote.backend import RemoteBackend
from backends.remote.config import RemoteConfig
from gateway.config import ServerConfig, Settings
from gateway.services import Services
from gateway.store.config import MEMORY, StoreConfig
from tests.upstream import Received, Script, ScriptedUpstream, json_answer, scripted

BODY = {
    "model": "ranker",
    "query": "capital?",
    "documents": ["Berlin", {"text": "Köln"}],
    "top_n": 1,
    "unheard_of": {"model": 1},
}
ANSWER = {"model": "theirs", "results": [{"index": 1, "relevance_score": 0.9}], "usage": {"total_tokens": 15}}


class Running:
    """A gateway in front of one scripted upstream, spoken to without a socket."""

    def __init__(self, client: httpx.AsyncClient, upstream: ScriptedUpstream, services: Services) -> None:
        self.client, self.upstream, self.services = client, upstream, services

    async def post(self, body: Any = BODY, path: str = "/v1/rerank") -> httpx.Response:
        """Ask, as a client would."""
        content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        return await self.client.post(path, content=content)

    @property
    def received(self) -> list[Received]:
        """What the upstream was asked, but for whether it is well."""
        return [request for request in self.upstream.requests if request.method == "POST"]


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def run(*scripts: Script) -> Running:
            upstream = await stack.enter_async_context(scripted(*scripts))
            remote = RemoteConfig(url=upstream.url, model="theirs", capabilities=("rerank",))
            backends: dict[str, Backend] = {
                "ranker": RemoteBackend("ranker", remote),
                "chatty": FakeBackend("chatty", FakeModel()),
            }
            services = Services(Settings(server=ServerConfig(), models={}, store=StoreConfig(path=MEMORY)), backends, {})
            await services.start()
            stack.push_async_callback(services.close)
            transport = httpx.ASGITransport(app=gateway.app.create_app(services))  # type: ignore[arg-type]
            client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://gateway"))
            return Running(client, upstream, services)

        yield run


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
async def test_a_request_passes_as_it_is(start: Start, path: str) -> None:
    running = await start(json_answer(ANSWER, 200, ("x-request-id", "up-1")))
    answer = await running.post(path=path)
    assert (answer.status_code, answer.json()) == (200, ANSWER | {"model": "ranker"})
    assert answer.headers["x-baton-deployment"] == "ranker"
    (received,) = running.received
    assert (received.path, received.json()) == ("/v1/rerank", BODY | {"model": "theirs"})


async def test_the_only_reranker_need_not_be_named(start: Start) -> None:
    running = await start(json_answer(ANSWER))
    body = {name: value for name, value in BODY.items() if name != "model"}
    assert (await running.post(body)).status_code == 200
    assert running.received[0].json() == BODY | {"model": "theirs"}


async def test_what_the_upstream_counts_is_metered(start: Start) -> None:
    running = await start(json_answer(ANSWER))
    await running.post()
    metrics = (await running.client.get("/metrics")).text
    assert [line for line in metrics.splitlines() if "prompt_tokens" in line and line.endswith(" 15.0") and 'rerank"' in line]


async def test_an_upstream_that_counts_nothing_is_fine(start: Start) -> None:
    running = await start(json_answer({"results": [], "meta": {"billed_units": {"search_units": 1}}}))
    answer = await running.post()
    assert (answer.status_code, answer.json()["results"]) == (200, [])


async def test_what_the_upstream_refuses_is_refused(start: Start) -> None:
    running = await start(json_answer({"error": {"message": "top_n is odd", "param": "top_n"}}, 400))
    answer = await running.post()
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "top_n is odd")


async def test_a_model_of_another_kind_cannot_rerank(start: Start) -> None:
    running = await start(json_answer(ANSWER))
    answer = await running.post(BODY | {"model": "chatty"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", "model")
    assert "cannot rerank" in error["message"]
    assert running.received == []


@pytest.mark.parametrize(
    ("change", "param"),
    [({"query": 1}, "query"), ({"documents": []}, "documents"), ({"documents": "x"}, "documents"), ({"top_n": 0}, "top_n")],
)
async def test_a_wrong_body_is_refused_before_that(start: Start, change: dict[str, Any], param: str) -> None:
    running = await start(json_answer(ANSWER))
    answer = await running.post(BODY | {"model": "chatty"} | change)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_other_requests_are_refused(start: Start) -> None:
    running = await start(json_answer(ANSWER))
    assert (await running.client.get("/v1/rerank")).status_code == 405
    assert (await running.post(b"nope")).status_code == 400
    assert (await running.post(BODY | {"model": "nobody"})).status_code == 404
