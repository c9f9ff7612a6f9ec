"""Connections are reused as long as that is safe, bounded, and never lost."""

import asyncio
import gc
from collections.abc import AsyncIterator

import httpx
import pytest

from backends.remote.transport.http import HttpTransport
from backends.remote.transport.limits import ConnectionCounts, Limits
from tests.backends.remote.transport.conftest import Make
from tests.backends.remote.transport.raw_upstream import (
    Peer,
    RawUpstream,
    answer,
    body_of,
    echo_forever,
    request,
    sending,
)


async def get(transport: HttpTransport, url: str, pool: float = 5.0) -> bytes:
    return await body_of(await transport.handle_async_request(request(url, pool=pool)))


async def until(transport: HttpTransport, counts: ConnectionCounts) -> None:
    """Wait for what another task, or the server, must bring about."""
    async with asyncio.timeout(5):
        while transport.counts != counts:  # noqa: ASYNC110 (there is nothing to subscribe to)
            await asyncio.sleep(0.001)


async def test_one_connection_serves_one_request_after_another(transport: HttpTransport) -> None:
    async with RawUpstream(echo_forever) as upstream:
        for _ in range(100):
            assert await get(transport, upstream.url) == b"ok"
        assert upstream.num_connections == 1


async def test_connection_is_free_before_the_body_is_read(transport: HttpTransport) -> None:
    async with RawUpstream(sending(answer(b"x" * 100))) as upstream:
        responses = [await transport.handle_async_request(request(upstream.url)) for _ in range(10)]
        assert upstream.num_connections == 1
        assert [await body_of(response) for response in responses] == [b"x" * 100] * 10


async def test_responses_of_reused_connections_are_not_mixed_up(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        while data := await peer.request():
            number = data.rpartition(b"\r\n")[2]
            await peer.send(answer(number, b"x-number: " + number))

    async def one(number: int) -> None:
        response = await transport.handle_async_request(request(upstream.url, b"%d" % number))
        await asyncio.sleep(0)
        assert response.headers["x-number"] == str(number)
        assert await body_of(response) == b"%d" % number

    async with RawUpstream(script) as upstream:
        for start in range(0, 600, 60):
            await asyncio.gather(*(one(number) for number in range(start, start + 60)))
        assert upstream.num_connections <= 60


async def test_last_used_connection_is_taken_first(transport: HttpTransport) -> None:
    served: list[int] = []
    may_answer = {number: asyncio.Event() for number in (1, 2, 3)}

    async def script(peer: Peer) -> None:
        while await peer.request():
            served.append(peer.number)
            await may_answer[peer.number].wait()
            await peer.send(answer())

    async with RawUpstream(script) as upstream:
        tasks = [asyncio.create_task(get(transport, upstream.url)) for _ in range(3)]
        for number, event in may_answer.items():
            event.set()
            await until(transport, ConnectionCounts(3, number, 0))
        await asyncio.gather(*tasks)
        for _ in range(3):
            await get(transport, upstream.url)
        assert served[3:] == [3, 3, 3]


async def test_idle_connection_that_the_server_closes_is_dropped(transport: HttpTransport) -> None:
    async with RawUpstream(sending(answer(), and_close=True)) as upstream:
        assert await get(transport, upstream.url) == b"ok"
        await until(transport, ConnectionCounts(0, 0, 0))


@pytest.mark.parametrize("surplus", [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", b"x"])
@pytest.mark.parametrize("is_late", [False, True])
async def test_connection_with_bytes_that_nobody_asked_for_is_dropped(
    transport: HttpTransport, surplus: bytes, is_late: bool
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if is_late:
            await peer.send(answer())
            await asyncio.sleep(0.01)
            await peer.send(surplus)
        else:
            await peer.send(answer() + surplus)
        await peer.gone()

    async with RawUpstream(script) as upstream:
        for number in (1, 2):
            assert await get(transport, upstream.url) == b"ok"
            await until(transport, ConnectionCounts(0, 0, 0))
            assert upstream.num_connections == number


async def test_request_on_a_connection_that_dies_unanswered_is_repeated_once(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            await peer.send(answer())
            await peer.request()  # and close: the race that an idle connection can always lose
        elif peer.number == 2:
            await peer.send(answer(b"second"))
            await peer.request()

    async with RawUpstream(script) as upstream:
        assert await get(transport, upstream.url) == b"ok"
        assert await get(transport, upstream.url) == b"second"
        assert upstream.num_connections == 2
        with pytest.raises(httpx.RemoteProtocolError):
            await get(transport, upstream.url)
        assert upstream.num_connections == 3


async def test_request_is_not_repeated_once_an_answer_has_begun(transport: HttpTransport) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer())
        await peer.request()
        await peer.send(b"H")

    async with RawUpstream(script) as upstream:
        assert await get(transport, upstream.url) == b"ok"
        with pytest.raises(httpx.RemoteProtocolError):
            await get(transport, upstream.url)
        assert upstream.num_connections == 1


async def test_streamed_request_is_not_repeated(transport: HttpTransport) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"abc"

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer())
        await peer.request()

    async with RawUpstream(script) as upstream:
        assert await get(transport, upstream.url) == b"ok"
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await transport.handle_async_request(httpx.Request("POST", upstream.url, content=parts()))


async def test_idle_connection_expires(make: Make) -> None:
    transport = make(keep_alive_s=0.05)
    async with RawUpstream(echo_forever) as upstream:
        await asyncio.gather(*(get(transport, upstream.url) for _ in range(3)))
        assert transport.counts.idle == 3
        await until(transport, ConnectionCounts(0, 0, 0))


async def test_no_more_are_kept_idle_than_the_limit(make: Make) -> None:
    transport = make(limits=Limits(max_idle=2))
    async with RawUpstream(echo_forever) as upstream, RawUpstream(echo_forever) as other:
        await asyncio.gather(*(get(transport, one.url) for one in (upstream, other) for _ in range(5)))
        assert transport.counts == ConnectionCounts(2, 2, 0)


async def test_requests_beyond_the_limit_wait_in_order(make: Make) -> None:
    transport = make(limits=Limits(max_connections_per_origin=1))
    done: list[int] = []

    async def one(number: int) -> None:
        await get(transport, upstream.url)
        done.append(number)

    async with RawUpstream(echo_forever) as upstream:
        await asyncio.gather(*(one(number) for number in range(20)))
        assert upstream.num_connections == 1
        assert done == list(range(20))


async def test_pool_timeout_and_a_full_queue(make: Make) -> None:
    transport = make(limits=Limits(max_connections=1, max_waiting=1))
    async with RawUpstream(sending(b"HTTP/1.1 200 OK\r\n\r\n")) as upstream:
        response = await transport.handle_async_request(request(upstream.url))
        waiting = asyncio.create_task(get(transport, upstream.url, pool=0.05))
        await until(transport, ConnectionCounts(1, 0, 1))
        with pytest.raises(httpx.PoolTimeout, match="1 requests wait"):
            await get(transport, upstream.url)
        with pytest.raises(httpx.PoolTimeout, match=r"0\.05 s"):
            await waiting
        await response.aclose()
        assert transport.counts == ConnectionCounts(0, 0, 0)


async def test_idle_connection_gives_way_to_another_origin(make: Make) -> None:
    transport = make(limits=Limits(max_connections=1))
    async with RawUpstream(echo_forever) as upstream, RawUpstream(echo_forever) as other:
        for one in (upstream, other, upstream):
            assert await get(transport, one.url) == b"ok"
        assert transport.counts == ConnectionCounts(1, 1, 0)
        assert (upstream.num_connections, other.num_connections) == (2, 1)


async def test_request_to_another_origin_gets_the_place_of_a_finished_one(make: Make) -> None:
    transport = make(limits=Limits(max_connections=1))
    may_answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            await may_answer.wait()
            await peer.send(answer())

    async with RawUpstream(script) as slow, RawUpstream(echo_forever) as other:
        tasks = [asyncio.create_task(get(transport, url)) for url in (slow.url, other.url, slow.url)]
        await until(transport, ConnectionCounts(1, 0, 2))
        may_answer.set()
        assert await asyncio.gather(*tasks) == [b"ok"] * 3


async def test_cancelled_request_closes_its_connection_and_frees_its_place(make: Make) -> None:
    transport = make(limits=Limits(max_connections=1))
    asked = asyncio.Event()
    was_closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            asked.set()
            await peer.gone()
            was_closed.set()
        await peer.send(answer())
        await peer.gone()

    async with RawUpstream(script) as upstream:
        first = asyncio.create_task(get(transport, upstream.url))
        second = asyncio.create_task(get(transport, upstream.url))
        await asked.wait()
        first.cancel()
        assert await second == b"ok"
        await was_closed.wait()
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_cancelling_at_any_moment_loses_no_place(make: Make) -> None:
    transport = make(limits=Limits(max_connections=4))
    async with RawUpstream(echo_forever) as upstream:
        for steps in range(60):
            tasks = [asyncio.create_task(get(transport, upstream.url)) for _ in range(8)]
            for _ in range(steps % 20):
                await asyncio.sleep(0)
            for task in tasks[steps % 3 :: 2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            counts = transport.counts
            assert counts.open == counts.idle <= 4
            assert counts.waiting == 0


async def test_ten_thousand_requests_leak_nothing(transport: HttpTransport) -> None:
    async def work() -> None:
        for number in range(625):
            response = await transport.handle_async_request(request(upstream.url))
            if number % 50:
                await body_of(response)
            else:
                await response.aclose()

    async with RawUpstream(echo_forever) as upstream:
        await asyncio.gather(*(work() for _ in range(16)))
        assert upstream.num_connections <= 16
        assert transport.counts == ConnectionCounts(16, 16, 0)
        gc.collect()
        assert len(asyncio.all_tasks()) <= 17


async def test_closing_fails_whoever_waits_or_reads(make: Make) -> None:
    transport = make(limits=Limits(max_connections=1))
    async with RawUpstream(sending(b"HTTP/1.1 200 OK\r\n\r\n")) as upstream:
        response = await transport.handle_async_request(request(upstream.url))
        reading = asyncio.create_task(body_of(response))
        waiting = asyncio.create_task(get(transport, upstream.url))
        await until(transport, ConnectionCounts(1, 0, 1))
        await transport.aclose()
        with pytest.raises(httpx.ReadError):
            await reading
        with pytest.raises(httpx.ConnectError):
            await waiting
        with pytest.raises(httpx.ConnectError):
            await get(transport, upstream.url)
