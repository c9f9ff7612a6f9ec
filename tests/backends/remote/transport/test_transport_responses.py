"""Every legal way of ending a response, and what is skipped on the way."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from backends.remote.transport.http import HttpTransport
from tests.backends.remote.transport.raw_upstream import Peer, RawUpstream, answer, body_of, request, sending

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_request_and_response_are_what_httpx_makes_of_them(transport: HttpTransport) -> None:
    data = b"HTTP/1.1 201 Made It\r\nContent-Type: a/b\r\nX-A: 1\r\nx-a: 2 \t\r\nX-Empty:\r\ncontent-length: 2\r\n\r\n{}"
    received: list[bytes] = []

    async def script(peer: Peer) -> None:
        received.append(await peer.request())
        await peer.send(data)
        await peer.gone()

    async with RawUpstream(script) as upstream:
        response = await transport.handle_async_request(request(upstream.url, b"hello"))
        assert (response.status_code, response.reason_phrase, response.http_version) == (201, "Made It", "HTTP/1.1")
        assert response.headers.raw[1:4] == [(b"X-A", b"1"), (b"x-a", b"2"), (b"X-Empty", b"")]
        assert await response.aread() == b"{}"
        expected = b"POST /v1/x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 5\r\n\r\nhello" % upstream.port
        assert received == [expected]


async def test_it_serves_a_whole_httpx_client(make: object, transport: HttpTransport) -> None:
    async with RawUpstream(sending(answer(b'{"b":2}'))) as upstream, httpx.AsyncClient(transport=transport) as client:
        for _ in range(3):
            response = await client.post(upstream.url, json={"a": 1})
            assert response.json() == {"b": 2}
        async with client.stream("GET", upstream.url) as response:
            assert [chunk async for chunk in response.aiter_bytes()] == [b'{"b":2}']
        assert upstream.num_connections == 1


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (answer(b""), b""),
        (answer(b"x" * 300_000), b"x" * 300_000),
        (CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (CHUNKED + b'3;name=value;q="a b"\r\nabc\r\n0;last\r\nTrailer: yes\r\nOther: 1\r\n\r\n', b"abc"),
        (CHUNKED + b"A\r\n0123456789\r\n00\r\n\r\n", b"0123456789"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"\r\nHTTP/1.1 200 \r\ncontent-length:2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + answer(), b"ok"),
        (b"HTTP/1.1 200 OK\r\nupgrade: h2,h2c\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\nok", b"ok"),
    ],
)
@pytest.mark.parametrize("is_bytewise", [False, True])
async def test_response_ends_where_it_says_and_connection_is_reused(
    transport: HttpTransport, data: bytes, body: bytes, is_bytewise: bool
) -> None:
    if is_bytewise and len(data) > 1000:
        data, body = answer(b"x" * 500), b"x" * 500

    async def script(peer: Peer) -> None:
        while await peer.request():
            await (peer.send_bytewise(data) if is_bytewise else peer.send(data))

    async with RawUpstream(script) as upstream:
        for _ in range(3):
            response = await transport.handle_async_request(request(upstream.url))
            assert await body_of(response) == body
        assert upstream.num_connections == 1
        assert (transport.counts.open, transport.counts.idle) == (1, 1)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
    ],
)
async def test_body_without_a_length_ends_with_the_connection(transport: HttpTransport, head: bytes) -> None:
    async with RawUpstream(sending(head + b"abc", and_close=True)) as upstream:
        for _ in range(2):
            assert await body_of(await transport.handle_async_request(request(upstream.url))) == b"abc"
        assert upstream.num_connections == 2
        assert transport.counts.open == 0


@pytest.mark.parametrize("headers", [[b"connection: close"], [b"Connection: Close, foo"]])
async def test_connection_is_not_reused_when_the_server_says_close(transport: HttpTransport, headers: list[bytes]) -> None:
    async with RawUpstream(sending(answer(b"ok", *headers))) as upstream:
        for _ in range(2):
            assert await body_of(await transport.handle_async_request(request(upstream.url))) == b"ok"
        assert upstream.num_connections == 2


async def test_response_to_head_has_no_body_whatever_it_says(transport: HttpTransport) -> None:
    async with RawUpstream(sending(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")) as upstream:
        for _ in range(2):
            response = await transport.handle_async_request(request(upstream.url, None, "HEAD"))
            assert response.headers["content-length"] == "1000"
            assert await body_of(response) == b""
        assert transport.counts.open == 0


async def test_streamed_request_is_chunked(transport: HttpTransport) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b""
        yield b"x" * 20

    received: list[bytes] = []

    async def script(peer: Peer) -> None:
        while data := await peer.request():
            received.append(data.partition(b"\r\n\r\n")[2])
            await peer.send(answer())

    async with RawUpstream(script) as upstream:
        for _ in range(2):
            response = await transport.handle_async_request(httpx.Request("POST", upstream.url, content=parts()))
            assert await body_of(response) == b"ok"
        assert received == [b"3\r\nabc\r\n14\r\n" + b"x" * 20 + b"\r\n0\r\n\r\n"] * 2
        assert upstream.num_connections == 1


async def test_answer_before_the_end_of_a_streamed_request_ends_the_request(transport: HttpTransport) -> None:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await peer.gone()

    async with RawUpstream(script) as upstream:
        response = await transport.handle_async_request(httpx.Request("POST", upstream.url, content=parts()))
        assert (response.status_code, await body_of(response)) == (413, b"no")
        assert transport.counts.open == 0


async def test_connection_with_an_unfinished_request_is_not_reused(transport: HttpTransport) -> None:
    was_answered = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        yield b"abc"
        await was_answered.wait()
        yield b"def"

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"abc")
        await peer.send(answer())
        asyncio.get_running_loop().call_later(0.02, was_answered.set)
        await peer.gone()

    async with RawUpstream(script) as upstream:
        response = await transport.handle_async_request(httpx.Request("POST", upstream.url, content=parts()))
        assert await body_of(response) == b"ok"
        assert transport.counts.open == 0
