"""What can go wrong between the first byte of a request and the last of its response, as one of httpx's errors."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import cast

import httpx
import pytest

from backends.remote.transport.http import HttpTransport
from backends.remote.transport.stream import ResponseStream
from tests.backends.remote.transport.raw_upstream import Peer, RawUpstream, answer, body_of, request, sending

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def fails(transport: HttpTransport, sent: httpx.Request) -> httpx.TransportError:
    """The error of a whole exchange, after which nothing may be left."""
    with pytest.raises(httpx.TransportError) as caught:
        await body_of(await transport.handle_async_request(sent))
    assert transport.counts.open == 0
    return caught.value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "without a complete response head"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "without a complete response head"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", "inside the response body"),
        (CHUNKED + b"5\r\nab", "inside the response body"),
        (CHUNKED + b"2\r\nab\r\n0\r\n", "inside the response body"),
        (b"SSH-2.0-OpenSSH_9\r\n", "malformed"),
        (b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n", "HTTP/2.0"),
        (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok", "malformed"),
        (b"HTTP/1.1 200 OK\r\na: b\r\n folded\r\ncontent-length: 0\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok", "malformed"),
        (CHUNKED[:-2] + b"content-length: 2\r\n\r\n", "malformed"),
        (CHUNKED + b"xyz\r\n", "malformed"),
        (CHUNKED + b"2\r\nabc\r\n", "malformed"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "changed the protocol"),
    ],
)
async def test_response_that_is_broken_or_breaks_off(transport: HttpTransport, data: bytes, message: str) -> None:
    async with RawUpstream(sending(data, and_close=True)) as upstream:
        error = await fails(transport, request(upstream.url))
        assert type(error) is httpx.RemoteProtocolError
        assert message in str(error)


async def test_what_came_before_the_break_is_handed_over(transport: HttpTransport) -> None:
    async with RawUpstream(sending(CHUNKED + b"3\r\nabc\r\nxyz")) as upstream:
        chunks = cast(ResponseStream, (await transport.handle_async_request(request(upstream.url))).stream)
        assert await chunks.read_chunk() == b"abc"
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await chunks.read_chunk()


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\n", CHUNKED + b"2\r\nab\r\n", b"HTTP/1.1 200 OK\r\n\r\nab"])
async def test_reset_is_a_read_error(transport: HttpTransport, data: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        await may_reset.wait()
        peer.reset()

    may_reset = asyncio.Event()
    async with RawUpstream(script) as upstream:
        asyncio.get_running_loop().call_later(0.02, may_reset.set)
        assert type(await fails(transport, request(upstream.url))) is httpx.ReadError


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"HTTP/1.1 200 ", b"x"),
        (b"HTTP/1.1 200 OK\r\nname", b"x"),
        (b"HTTP/1.1 200 OK\r\nname: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (CHUNKED + b"5;", b"x"),
        (CHUNKED + b"0\r\n", b"a: b\r\n"),
        (CHUNKED + b"0\r\nname: ", b"x"),
    ],
)
async def test_endless_head_extension_or_trailer_is_cut_off(transport: HttpTransport, start: bytes, endless: bytes) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(start)
        try:
            while sent < 4_000_000:
                await peer.send(endless * 1000)
                sent += 1000 * len(endless)
        except ConnectionError:
            return

    async with RawUpstream(script) as upstream:
        error = await fails(transport, request(upstream.url))
        assert type(error) is httpx.RemoteProtocolError
        assert "65536 bytes" in str(error) or "128 headers" in str(error)


async def test_slow_head_is_a_read_timeout_even_while_it_trickles(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        for byte in b"HTTP/1.1 200 OK" * 1000:
            try:
                await peer.send(bytes([byte]))
            except ConnectionError:
                return
            await asyncio.sleep(0.01)

    async with RawUpstream(script) as upstream:
        assert type(await fails(transport, request(upstream.url, read=0.08))) is httpx.ReadTimeout


async def test_server_that_takes_no_request_is_a_write_timeout(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        peer.stop_reading()
        await asyncio.Event().wait()

    async with RawUpstream(script) as upstream:
        big = b"x" * 20_000_000
        assert type(await fails(transport, request(upstream.url, big, write=0.05))) is httpx.WriteTimeout


async def test_early_answer_to_a_big_request_is_read(transport: HttpTransport) -> None:
    has_head = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.stop_reading()
        await peer.send(answer(b"no")[:-1])
        await has_head.wait()
        await peer.send(b"o")
        await asyncio.Event().wait()

    async with RawUpstream(script) as upstream:
        response = await transport.handle_async_request(request(upstream.url, b"x" * 20_000_000))
        has_head.set()
        assert await body_of(response) == b"no"
        assert transport.counts.open == 0


async def test_nobody_listens(transport: HttpTransport) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        error = await fails(transport, request(f"http://127.0.0.1:{free.getsockname()[1]}/"))
    assert type(error) is httpx.ConnectError
    assert "127.0.0.1" in str(error)


async def test_unknown_name_is_a_connect_error(transport: HttpTransport) -> None:
    assert type(await fails(transport, request("http://no-such-host.invalid/"))) is httpx.ConnectError


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "/v1/models", "http:///x"])
async def test_other_schemes_are_refused(transport: HttpTransport, url: str) -> None:
    assert type(await fails(transport, httpx.Request("GET", url))) is httpx.UnsupportedProtocol


async def test_streamed_body_that_breaks_its_promise_closes_the_connection(transport: HttpTransport) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"abc"

    async def script(peer: Peer) -> None:
        await peer.gone()

    async with RawUpstream(script) as upstream:
        sent = httpx.Request("POST", upstream.url, content=parts(), headers={"content-length": "4"})
        assert type(await fails(transport, sent)) is httpx.LocalProtocolError


async def test_failing_producer_closes_the_connection(transport: HttpTransport) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"abc"
        raise ValueError("mine")

    async def script(peer: Peer) -> None:
        await peer.gone()

    async with RawUpstream(script) as upstream:
        with pytest.raises(ValueError, match="mine"):
            await transport.handle_async_request(httpx.Request("POST", upstream.url, content=parts()))
        assert transport.counts.open == 0
