"""Streams that the memory benchmark opens: left in the middle as told, and an error when they are not answered."""

import asyncio
from collections.abc import Callable

import pytest

from benchmarks import gateway_memory
from benchmarks.gateway_memory import abort_streams, open_stream
from benchmarks.load import target_of
from benchmarks.probe import probe
from benchmarks.servers import BenchmarkError
from benchmarks.upstream import Upstream
from tests.benchmarks.loopback import serving


class Refusing(asyncio.Protocol):
    """Refuses every request, and keeps the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nfull")


async def test_every_stream_is_opened_and_left() -> None:
    async with serving(lambda: Upstream(1000, 0.02, 60.0)) as (url, clients):
        await abort_streams(target_of(url, "none"), 100)
    assert (clients.opened, clients.alive) == (100, 0)


async def test_content_is_waited_for() -> None:
    async with serving(lambda: Upstream(1000, 0.05, 60.0)) as (url, _):
        stream = await open_stream(target_of(url, "none"))
        assert not stream.first.done()
        async with asyncio.timeout(5):
            await stream.first
        stream.abort()


async def test_a_refused_stream_ends_the_run_with_what_the_server_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_memory, "ABORTING_USERS", 1)
    async with serving(Refusing) as (url, _):
        with pytest.raises(BenchmarkError, match=r"refused: .*503 Busy.*full"):
            await abort_streams(target_of(url, "none"), 2)


@pytest.mark.parametrize(("protocol", "fails"), [(lambda: Upstream(1, 0.0, 0.0), False), (Refusing, True)])
async def test_the_probe_counts_answers_and_failures(protocol: Callable[[], asyncio.Protocol], fails: bool) -> None:
    stop = asyncio.Event()
    async with serving(protocol) as (url, _):
        asyncio.get_running_loop().call_later(0.1, stop.set)
        figures = await probe(f"{url}/health/live", 0.001, stop)
    assert isinstance(figures["n"], int)
    assert figures["n"] > 1
    assert figures["errors"] == (figures["n"] if fails else 0)
