"""Time limits of the HTTP protocol, on a real server whose limit is short."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvicorn

from gateway.http_protocol import BoundedHttp

LIMIT_S = 0.2
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"


class Impatient(BoundedHttp):
    head_timeout_s = LIMIT_S


async def slow_app(scope, receive, send) -> None:
    """Answer with five pieces that take three times the limit together."""
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(5):
        await asyncio.sleep(LIMIT_S * 0.6)
        await send({"type": "http.response.body", "body": b"piece", "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Server(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        self.listening.set()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    config = uvicorn.Config(slow_app, port=0, http=Impatient, lifespan="off", log_config=None, access_log=False, ws="none")
    server = Server(config)
    server.listening = asyncio.Event()
    serving = asyncio.create_task(server._serve())
    await server.listening.wait()
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = server.force_exit = True
    await serving


@pytest.fixture
async def connection(port) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield reader, writer
    writer.close()
    await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), 10)


@pytest.mark.parametrize("parts", [[HEAD + b"{}"], [HEAD, b"{}"], [HEAD, b"{", b"}"], [HEAD[:20], HEAD[20:], b"{}"]])
async def test_answer_may_take_longer_than_a_head(connection, parts):
    reader, writer = connection
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.02)  # lets each part arrive by itself
    assert (await read_answer(reader)).count(b"piece") == 5


async def test_half_a_head_behind_a_running_request_does_not_cut_its_answer(connection):
    reader, writer = connection
    writer.write(HEAD + b"{}")
    await asyncio.sleep(0.02)
    writer.write(b"GET / HT")
    assert (await read_answer(reader)).count(b"piece") == 5
    assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 408 ")


async def test_connection_is_used_again_after_longer_than_a_head_may_take(connection):
    reader, writer = connection
    for _ in range(2):
        writer.write(HEAD)
        await asyncio.sleep(0.02)
        writer.write(b"{}")
        assert (await read_answer(reader)).count(b"piece") == 5
        await asyncio.sleep(LIMIT_S * 1.5)


async def test_head_that_does_not_end_is_refused(connection):
    reader, writer = connection
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n")
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"within 0.2 s" in answer


async def test_connection_without_a_request_is_closed_without_a_word(connection):
    reader, _ = connection
    assert await asyncio.wait_for(reader.read(), 10) == b""
