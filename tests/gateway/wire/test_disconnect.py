"""A client that leaves stops its work: in both modes, before and after the first token, running and queued."""

import asyncio
import random
import re
import threading
from contextlib import aclosing

import httpx
import pytest

from backends.fake import FakeBackend, FakeModel
from backends.fake_script import FakeReply
from gateway.disconnect import run_until_disconnect
from gateway.errors import ClientGone
from tests.gateway.wire.conftest import LONG, Gateway
from tests.gateway.wire.raw import HI, connect, read_until

CHAT = "/v1/chat/completions"
ROUTES = [
    (CHAT, {"messages": HI}),
    ("/v1/completions", {"prompt": "hi", "max_tokens": 1000}),
    ("/v1/completions", {"prompt": ["a", "b", "c"], "max_tokens": 1000}),
]


def cancelled(gateway: Gateway) -> float:
    """How many requests the metrics count as ended by their client."""
    text = httpx.get(f"{gateway.url}/metrics").text
    counts = re.findall(r'^baton_requests_total\{.*error_code="client_closed_request".*\} ([0-9.e+]+)$', text, re.MULTILINE)
    return sum(float(count) for count in counts)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "fields"), ROUTES)
def test_leaving_before_the_first_token(gateway: Gateway, path: str, fields: dict, stream: bool) -> None:
    before = cancelled(gateway)
    connection = connect(gateway.port, path, {"model": "never", "stream": stream} | fields)
    gateway.eventually(lambda: gateway.load("never")[0] > 0)
    connection.close()
    gateway.eventually(lambda: gateway.load("never") == (0, 0))
    gateway.eventually(lambda: cancelled(gateway) == before + 1)


@pytest.mark.parametrize(("path", "fields"), ROUTES)
def test_leaving_in_the_middle_of_a_stream(gateway: Gateway, path: str, fields: dict) -> None:
    before = cancelled(gateway)
    connection = connect(gateway.port, path, {"model": "slow", "stream": True} | fields)
    seen = read_until(connection, b"q")
    assert b"HTTP/1.1 200" in seen
    connection.close()
    gateway.eventually(lambda: gateway.load("slow") == (0, 0))
    gateway.eventually(lambda: cancelled(gateway) == before + 1)


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_the_queue(gateway: Gateway, stream: bool) -> None:
    first = connect(gateway.port, CHAT, {"model": "one-slot", "stream": True, "messages": HI})
    read_until(first, b"content")
    queued = [connect(gateway.port, CHAT, {"model": "one-slot", "stream": stream, "messages": HI}) for _ in range(5)]
    gateway.eventually(lambda: gateway.load("one-slot") == (1, 5))
    for connection in queued:
        connection.close()
    gateway.eventually(lambda: gateway.load("one-slot") == (1, 0))
    first.close()
    gateway.eventually(lambda: gateway.load("one-slot") == (0, 0))


def test_leaving_during_embeddings_and_tokenize_does_no_harm(gateway: Gateway) -> None:
    for path, body in (("/v1/embeddings", {"model": "fake", "input": ["x" * 100] * 500}), ("/tokenize", {"prompt": "x"})):
        connect(gateway.port, path, {"model": "fake"} | body).close()
    assert httpx.post(f"{gateway.url}/v1/embeddings", json={"model": "fake", "input": "a"}).status_code == 200


def test_two_hundred_aborted_streams_leave_nothing_behind(gateway: Gateway) -> None:
    tasks = gateway.tasks()
    rng = random.Random(1)
    for _ in range(10):
        connections = []
        for _ in range(20):
            body = {"model": rng.choice(["slow", "never", "one-slot"]), "stream": rng.random() < 0.8, "messages": HI}
            connections.append((connect(gateway.port, CHAT, body | {"n": rng.choice([1, 3])}), body))
        for connection, body in connections:
            if body["stream"] and body["model"] == "slow" and rng.random() < 0.5:
                read_until(connection, b"content")
            connection.close()
    for name in ("slow", "never", "one-slot"):
        gateway.eventually(lambda name=name: gateway.load(name) == (0, 0))
    gateway.eventually(lambda: gateway.tasks() <= tasks)
    answer = httpx.post(f"{gateway.url}{CHAT}", json={"model": "one-slot", "messages": HI, "max_tokens": 1})
    assert answer.status_code == 200


class CountingBackend(FakeBackend):
    """Counts what it was made to say."""

    said = 0

    async def generate(self, request):
        async with aclosing(super().generate(request)) as deltas:
            async for delta in deltas:
                self.said += 1
                yield delta


def test_a_client_that_does_not_read_holds_the_backend_back() -> None:
    """Without back-pressure the whole answer would pile up in the server."""
    total = len(LONG) * 1000
    backend = CountingBackend("flood", FakeModel(replies=(FakeReply(text=LONG * 1000),), context=1 << 24))
    with Gateway({"flood": backend}) as own:
        connection = connect(own.port, CHAT, {"stream": True, "messages": HI})
        read_until(connection, b"content")
        samples = [-1]

        def stands_still() -> bool:
            samples.append(backend.said)
            threading.Event().wait(0.2)
            return samples[-1] == samples[-2]

        own.eventually(stands_still)
        assert backend.said < total
        assert own.load("flood") == (1, 0)
        connection.close()
        own.eventually(lambda: own.load("flood") == (0, 0))


class Events:
    """A `receive` that reports the disconnect when it is told to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def __call__(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_work_is_cancelled_once_and_may_take_its_time_to_close() -> None:
    events, steps = Events(), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            steps.append("cancelled")
            await asyncio.sleep(0.01)
            steps.append("closed")
            raise

    task = asyncio.create_task(run_until_disconnect(events, work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    events.gone.set()
    with pytest.raises(ClientGone):
        await task
    assert steps == ["cancelled", "closed"]


async def test_cancelling_the_caller_twice_does_not_interrupt_the_closing() -> None:
    steps = []
    closed = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            steps.append("closed")
            closed.set()

    task = asyncio.create_task(run_until_disconnect(Events(), work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        await closed.wait()
    assert steps == ["closed"]


async def test_the_result_and_the_error_of_the_work_are_passed_on() -> None:
    async def answer() -> int:
        return 7

    async def fail() -> None:
        raise KeyError("x")

    assert await run_until_disconnect(Events(), answer()) == 7
    with pytest.raises(KeyError):
        await run_until_disconnect(Events(), fail())
    assert len(asyncio.all_tasks()) == 1
