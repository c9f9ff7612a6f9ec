"""One upstream server: sends requests, and gives each answer as an `Exchange` that is read piece by piece.

Works on `httpx` requests and responses, but without `httpx.AsyncClient`, which costs more than everything else here together.
Redirects are not followed and cookies not kept. Knows no JSON and no models.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol, TypeVar, cast

import httpx

from backends.errors import BackendError, Unavailable
from backends.forwarding import Headers
from backends.remote.config import RemoteConfig
from backends.remote.decoding import Inflater
from backends.remote.errors import from_status, from_transport, protocol_error
from backends.remote.guard import Guard
from backends.trace_context import TRACE_HEADER_NAMES, trace_headers

T = TypeVar("T")

_MAX_ERROR_BYTES = 1 << 16
_DRAIN_S = 1.0


class _Reader(Protocol):
    async def read_chunk(self) -> bytes: ...

    async def aclose(self) -> None: ...


class Upstream:
    """The connections to one server, and the requests that use them.

    Args:
        transport: owned; closed with this.
        headers: sent with every request.
    """

    def __init__(self, config: RemoteConfig, transport: httpx.AsyncBaseTransport, headers: Headers) -> None:
        self.config = config
        self._transport = transport
        self._headers = [(b"host", httpx.URL(config.base_url).netloc), *headers]
        self._urls: dict[str, httpx.URL] = {}
        self._timeouts = {
            "connect": config.connect_timeout_s,
            "pool": config.connect_timeout_s,
            "read": None,
            "write": config.between_tokens_timeout_s,
        }
        self._live: set[Exchange] = set()
        self.closed = False

    @property
    def running(self) -> int:
        """Requests whose answer has begun."""
        return sum(exchange.status != 0 for exchange in self._live)

    @property
    def waiting(self) -> int:
        """Requests that have been sent and not answered."""
        return len(self._live) - self.running

    async def send(self, method: str, path: str, body: bytes, headers: Headers, *, seconds: float, late: str) -> "Exchange":
        """Send a request, and return when the head of a successful answer is there.

        Args:
            path: below the API's base, or a whole URL.
            seconds: from now to the head.
            late: what to say when it is not there by then.

        Raises:
            BackendError: as `backends.remote.errors` has it.
        """
        if self.closed:
            raise closed()
        # With `stream` httpx adds no headers of its own, which it would do slowly.
        length = [(b"content-length", b"%d" % len(body))] if body else []
        trace = trace_headers.get()
        if trace:
            headers = [header for header in headers if header[0] not in TRACE_HEADER_NAMES] + trace
        request = httpx.Request(
            method,
            self._url(path),
            headers=self._headers + length + headers,
            stream=httpx.ByteStream(body),
            extensions={"timeout": self._timeouts.copy()},
        )
        exchange = Exchange(self.config, self._live.discard)
        self._live.add(exchange)
        try:
            await exchange.open(self._transport.handle_async_request(request), seconds, late)
        except BaseException:
            await exchange.aclose()
            raise
        return exchange

    async def fetch(self, method: str, path: str, body: bytes, headers: Headers, *, seconds: float) -> bytes:
        """Send a request and return the whole body of a successful answer. Raises like `send`."""
        late = f"The upstream server did not answer within {seconds:g} s."
        exchange = await self.send(method, path, body, headers, seconds=seconds, late=late)
        try:
            return await exchange.read_all(self.config.max_response_bytes)
        finally:
            await exchange.aclose()

    async def aclose(self) -> None:
        """End everything that runs with `Unavailable`, then close the connections. May be called twice."""
        self.closed = True
        for exchange in list(self._live):
            exchange.guard.interrupt(closed())
        await self._transport.aclose()

    def _url(self, path: str) -> httpx.URL:
        """Parsed once: paths are few, and parsing costs as much as a small request."""
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = httpx.URL(path if "://" in path else self.config.base_url + path)
        return url


class Exchange:
    """One request and its answer. `status` is 0 until the head is there; whoever has it closes it.

    Every read has a limit: `limit` moves it. `total_timeout_s` of the configuration bounds it in any case.
    """

    def __init__(self, config: RemoteConfig, on_close: Callable[["Exchange"], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_close = on_close
        self._total_s = config.total_timeout_s
        self._end = self._loop.time() + config.total_timeout_s
        self._until = self._end
        self._late = ""
        self._reader: _Reader | None = None
        self._inflater: Inflater | None = None
        self.guard = Guard(self._loop)
        self.status = 0
        self.headers: Headers = []

    def header(self, name: bytes) -> str:
        """A header of the answer by its lower-case name; empty when it is not there, the first when it is there twice."""
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def limit(self, seconds: float, late: str) -> None:
        """From now on, reading fails with the message `late` after `seconds`, or when the whole request takes too long."""
        self._until, self._late = self._loop.time() + seconds, late
        if self._until > self._end:
            self._until, self._late = self._end, f"The upstream server did not finish within {self._total_s:g} s."

    async def open(self, sending: Awaitable[httpx.Response], seconds: float, late: str) -> None:
        """Wait for the head; raises what an unsuccessful status means."""
        self.limit(seconds, late)
        response = await self._wait(sending)
        self.status, self.headers = response.status_code, response.headers.raw
        stream = cast("httpx.AsyncByteStream", response.stream)
        self._reader = cast("_Reader", stream) if hasattr(stream, "read_chunk") else _Iterated(stream)
        encoding = self.header(b"content-encoding").strip().lower()
        if encoding not in ("", "identity"):
            self._inflater = Inflater(encoding)
        if not 200 <= self.status < 300:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.headers}
            raise from_status(self.status, headers, await self._error_body())

    async def read(self) -> bytes:
        """Return the next bytes of the body, decompressed; `b""` at the end."""
        reader = self._reader
        assert reader is not None
        while True:
            data = await self._wait(reader.read_chunk())
            if not data:
                return b""
            if self._inflater is not None:
                data = self._inflater.push(data)
            if data:
                return data

    async def read_all(self, max_bytes: int) -> bytes:
        """Return the whole body.

        Raises:
            Failed: it is larger than `max_bytes`.
        """
        data = await self.read()
        pieces = [data]
        size = len(data)
        while data:
            if size > max_bytes:
                raise protocol_error(f"The upstream server's answer is larger than {max_bytes} bytes.")
            data = await self.read()
            pieces.append(data)
            size += len(data)
        return b"".join(pieces)

    async def drain(self) -> None:
        """After the last byte that matters: see the body end, so that the connection can serve again; not for long."""
        self.limit(_DRAIN_S, "")
        try:
            await self.read()
        except BackendError:
            return

    async def aclose(self) -> None:
        """Release the connection; a body that was not read to its end is cut off, which cancels the request upstream."""
        self.guard.stop()
        self._on_close(self)
        reader, self._reader = self._reader, None
        if reader is not None:
            try:
                await reader.aclose()
            except httpx.TransportError:
                return

    async def _error_body(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        self.limit(_DRAIN_S, "")
        try:
            while size < _MAX_ERROR_BYTES and (data := await self.read()):
                pieces.append(data)
                size += len(data)
        except BackendError:
            # The status says enough.
            return b"".join(pieces)[:_MAX_ERROR_BYTES]
        return b"".join(pieces)[:_MAX_ERROR_BYTES]

    async def _wait(self, work: Awaitable[T]) -> T:
        try:
            return await self.guard.wait(work, self._until, self._late)
        except httpx.TransportError as error:
            raise from_transport(error) from error


class _Iterated:
    """Reads a stream of any transport chunk by chunk."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream
        self._chunks = aiter(stream)

    async def read_chunk(self) -> bytes:
        async for chunk in self._chunks:
            if chunk:
                return chunk
        return b""

    async def aclose(self) -> None:
        if isinstance(self._chunks, AsyncGenerator):
            await self._chunks.aclose()
        await self._stream.aclose()


def closed() -> Unavailable:
    """The backend was closed, before or while it served."""
    return Unavailable("The backend was closed.")
