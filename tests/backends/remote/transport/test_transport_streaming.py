"""A body while it arrives: pieces, pauses, time limits and early ends."""

import asyncio
from typing import cast

import httpx
import pytest

from backends.remote.transport.http import HttpTransport
from backends.remote.transport.stream import ResponseStream
from tests.backends.remote.transport.raw_upstream import Peer, RawUpstream, request

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def opened(transport: HttpTransport, sent: httpx.Request) -> ResponseStream:
    return cast(ResponseStream, (await transport.handle_async_request(sent)).stream)


async def test_chunks_that_arrived_together_are_read_together(transport: HttpTransport) -> None:
    may_go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n")
        await may_go_on.wait()
        await peer.send(b"1\r\nd\r\n0\r\n\r\n")
        await peer.gone()

    async with RawUpstream(script) as upstream:
        stream = await opened(transport, request(upstream.url))
        assert await stream.read_chunk() == b"abc"
        may_go_on.set()
        assert await stream.read_chunk() == b"d"
        assert [await stream.read_chunk() for _ in range(2)] == [b"", b""]


async def test_chunk_is_there_as_soon_as_it_was_sent(transport: HttpTransport) -> None:
    turn = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        for _ in range(20):
            await turn.wait()
            turn.clear()
            await peer.send(b"3\r\ntok\r\n")
        await peer.send(b"0\r\n\r\n")
        await peer.gone()

    async with RawUpstream(script) as upstream:
        stream = await opened(transport, request(upstream.url))
        for _ in range(20):
            turn.set()
            assert await stream.read_chunk() == b"tok"
        assert await stream.read_chunk() == b""


async def test_server_is_slowed_down_by_a_slow_reader(transport: HttpTransport) -> None:
    total, sent = 40 * 2**20, 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            await peer.send(b"x" * 2**16)
            sent += 2**16
        await peer.gone()

    async with RawUpstream(script) as upstream:
        stream = await opened(transport, request(upstream.url))
        before = -1
        async with asyncio.timeout(10):
            while sent != before:
                before = sent
                await asyncio.sleep(0.05)
        assert stream.buffered_bytes < 2**20
        assert sent < total
        received = 0
        while data := await stream.read_chunk():
            assert len(data) < 2**20
            received += len(data)
        assert received == total
        assert transport.counts.idle == 1


async def test_read_timeout_can_change_between_reads(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        await asyncio.sleep(0.1)
        await peer.send(b"5\r\nfirst\r\n")
        await peer.gone()

    async with RawUpstream(script) as upstream:
        sent = request(upstream.url, read=60.0)
        stream = await opened(transport, sent)
        assert await stream.read_chunk() == b"first"
        sent.extensions["timeout"]["read"] = 0.05
        started = asyncio.get_running_loop().time()
        with pytest.raises(httpx.ReadTimeout):
            await stream.read_chunk()
        assert asyncio.get_running_loop().time() - started < 5
        assert transport.counts.open == 0
        with pytest.raises(httpx.ReadTimeout):
            await stream.read_chunk()


async def test_each_wait_has_the_whole_read_timeout(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        for _ in range(6):
            await asyncio.sleep(0.1)
            await peer.send(b"1\r\na\r\n")
        await peer.send(b"0\r\n\r\n")
        await peer.gone()

    async with RawUpstream(script) as upstream:
        stream = await opened(transport, request(upstream.url, read=0.4))
        assert b"".join([chunk async for chunk in stream]) == b"aaaaaa"


async def test_chunk_framing_without_a_body_does_not_extend_the_wait(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        try:
            await peer.send(HEAD + b"1;")
            for _ in range(1000):
                await peer.send(b"x")
                await asyncio.sleep(0.01)
        except ConnectionError:
            return

    async with RawUpstream(script) as upstream:
        stream = await opened(transport, request(upstream.url, read=0.1))
        with pytest.raises(httpx.ReadTimeout):
            await stream.read_chunk()


async def test_time_between_reads_does_not_count(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n")
        await peer.gone()

    async with RawUpstream(script) as upstream:
        sent = request(upstream.url, read=0.05)
        stream = await opened(transport, sent)
        assert await stream.read_chunk() == b"a"
        await asyncio.sleep(0.1)
        assert transport.counts.open == 1
        sent.extensions["timeout"]["read"] = None
        await stream.aclose()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_leaving_early_closes_the_connection(transport: HttpTransport, is_cancelled: bool) -> None:
    was_closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n")
        await peer.gone()
        was_closed.set()

    async with RawUpstream(script) as upstream:
        stream = await opened(transport, request(upstream.url))
        assert await stream.read_chunk() == b"a"
        if is_cancelled:
            reading = asyncio.create_task(stream.read_chunk())
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        else:
            await stream.aclose()
            await stream.aclose()
        assert transport.counts.open == 0
        async with asyncio.timeout(5):
            await was_closed.wait()
        with pytest.raises(httpx.StreamClosed):
            await stream.read_chunk()


async def test_many_streams_at_once_keep_their_bytes_apart(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        while data := await peer.request():
            number = data.rpartition(b"\r\n")[2]
            await peer.send(HEAD)
            for _ in range(50):
                await peer.send(b"%x\r\n%b\r\n" % (len(number), number))
                await asyncio.sleep(0)
            await peer.send(b"0\r\n\r\n")

    async def one(number: int) -> None:
        stream = await opened(transport, request(upstream.url, b"%d" % number))
        assert b"".join([chunk async for chunk in stream]) == b"%d" % number * 50

    async with RawUpstream(script) as upstream:
        await asyncio.gather(*(one(number) for number in range(40)))
        await asyncio.gather(*(one(number) for number in range(40)))
        assert upstream.num_connections == 40
