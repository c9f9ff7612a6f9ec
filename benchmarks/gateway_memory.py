"""What many streams cost Baton in memory, and whether it still answers health checks meanwhile.

First streams are aborted by their clients, half of them before their first chunk, in batches: what the process holds after the
second batch it may keep (allocators do not give back what they will need again), what it gains from then on is a leak. Then
many streams are open at once, each getting a chunk a second; in this order, because the room that they leave would hide a leak.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import uvloop

from benchmarks import gateway_servers
from benchmarks.gateway_cases import CHUNKS
from benchmarks.load import Workload, target_of
from benchmarks.servers import BenchmarkError, Running
from benchmarks.upstream import MODEL
from benchmarks.wire import Target

OPEN_STREAMS = 1000
ABORTED_STREAMS, QUICK_ABORTED_STREAMS = 10_000, 4000
BATCH = 1000
WARM_BATCHES = 2
ABORTING_USERS = 32
FIRST_MS = 20.0  # long enough to be gone before it
STEADY_S = 3.0
WAIT_S = 30.0

_OK = b"HTTP/1.1 200"
_FIRST_CONTENT = b'"tok "'


class Stream(asyncio.Protocol):
    """A client that opens a stream and will not read it to its end. `first` is done at the first piece of content."""

    def __init__(self, request: bytes) -> None:
        self._request, self._received = request, b""
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask at once."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Look for content until there was some."""
        if not self.first.done():
            self._received += data
            if _FIRST_CONTENT in self._received:
                self.first.set_result(None)
            elif not self._received.startswith(_OK[: len(self._received)]):
                self._fail("was refused")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what still waits."""
        if not self.first.done():
            self._fail("ended before its content")

    def _fail(self, how: str) -> None:
        self.first.set_exception(BenchmarkError(f"a stream {how}: {self._received[:1000]!r}"))
        self.first.exception()  # seen, whether anybody waits or not

    def abort(self) -> None:
        """Close the connection as a client that is gone does."""
        self._transport.abort()


async def open_stream(target: Target) -> Stream:
    """Connect and send the request."""
    body = Workload(model=MODEL, stream=True, salt="memory").body(0)
    request = target.post(msgspec.json.encode(body))
    _, stream = await asyncio.get_running_loop().create_connection(lambda: Stream(request), target.host, target.port)
    return stream


def measure(quick: bool) -> dict[str, Any]:
    """Start an upstream and a Baton of their own, and return the figures that `gateway_cases.MEMORY_GOALS` names.

    Raises:
        BenchmarkError: a stream was not answered.
    """
    aborted = QUICK_ABORTED_STREAMS if quick else ABORTED_STREAMS
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as name:
        upstream = gateway_servers.upstream(Path(name), chunks=CHUNKS * 100, first_ms=FIRST_MS, interval_ms=1000.0)
        with upstream as behind, gateway_servers.baton(behind, Path(name)) as server:
            target = target_of(server.url, server.key)
            return _measure_aborted(server, target, aborted) | _measure_open(server, target)


def _measure_open(server: Running, target: Target) -> dict[str, Any]:
    before = server.rss_mb()
    with _probe(server) as health:
        during, in_flight = uvloop.run(_hold_open(server, target))
    return {
        "open_streams": OPEN_STREAMS,
        "open_in_flight": in_flight,
        "rss_before_mb": before,
        "rss_open_mb": during,
        "rss_per_stream_kb": 1e3 * (during - before) / OPEN_STREAMS,
        "health_open": health,
        "health_p99_open_ms": health["e2e_ms"]["p99"],
    }


async def _hold_open(server: Running, target: Target) -> tuple[float, float | None]:
    """Open all streams and keep them for a while; returns memory in MB and the requests in flight then."""
    streams = [await open_stream(target) for _ in range(OPEN_STREAMS)]
    try:
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(stream.first for stream in streams))
        await asyncio.sleep(STEADY_S)
        return server.rss_mb(), await asyncio.to_thread(server.counter, "baton_requests_in_flight")
    finally:
        for stream in streams:
            stream.abort()


def _measure_aborted(server: Running, target: Target, streams: int) -> dict[str, Any]:
    rss_mb = []
    with _probe(server) as health:
        for _ in range(streams // BATCH):
            uvloop.run(abort_streams(target, BATCH))
            in_flight = _wait_until_idle(server)
            rss_mb.append(round(server.rss_mb(), 2))
    counted = streams - WARM_BATCHES * BATCH
    return {
        "aborted_streams": streams,
        "rss_after_batches_mb": rss_mb,
        "rss_per_abort_kb": max(0.0, 1e3 * (rss_mb[-1] - rss_mb[WARM_BATCHES - 1]) / counted),
        "in_flight_after": in_flight,
        "health_aborts": health,
        "health_p99_aborts_ms": health["e2e_ms"]["p99"],
    }


async def abort_streams(target: Target, count: int) -> None:
    """Open streams, a few at a time, and abort every other one before its first content and the rest after it."""
    numbers = iter(range(count))

    async def user() -> None:
        for number in numbers:
            stream = await open_stream(target)
            try:
                if number % 2:
                    async with asyncio.timeout(WAIT_S):
                        await stream.first
                else:
                    await asyncio.sleep(FIRST_MS / 2e3)
            finally:
                stream.abort()

    await asyncio.gather(*(user() for _ in range(ABORTING_USERS)))


def _wait_until_idle(server: Running) -> float:
    """Wait until no request is in flight, for a few seconds at most, and say how many are."""
    deadline = time.monotonic() + STEADY_S
    while (in_flight := server.counter("baton_requests_in_flight")) and time.monotonic() < deadline:
        time.sleep(0.05)
    if in_flight is None:
        raise BenchmarkError("/metrics has no baton_requests_in_flight")
    return in_flight


@contextlib.contextmanager
def _probe(server: Running) -> Iterator[dict[str, Any]]:
    """Ask `/health/live` all the while; the figures are there afterwards.

    Raises:
        BenchmarkError: it was not answered every time.
    """
    figures: dict[str, Any] = {}
    command = [sys.executable, "-m", "benchmarks.probe", f"{server.url}/health/live"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield figures
        output, _ = process.communicate(timeout=WAIT_S)
    figures.update(msgspec.json.decode(output))
    if figures["errors"]:
        raise BenchmarkError(f"/health/live failed {figures['errors']} of {figures['n']} times")
