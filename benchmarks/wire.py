"""One kept-alive HTTP/1.1 connection that notes when which bytes of an answer arrived, and looks no further.

A generator shares the machine with what it measures, so while the clock runs nothing is decoded: the framing is parsed in C,
and what the bytes mean is read afterwards (`benchmarks.answers`). Knows nothing about load or statistics.
Source: RFC 9112 (message framing).
"""

import asyncio
import time
from typing import cast

import httptools
from msgspec import Struct, field

_POST = (
    "POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
    "authorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
)


class Target(Struct, frozen=True, kw_only=True):
    """Where requests go, and with which API key."""

    host: str
    port: int
    path: str
    key: str

    def post(self, body: bytes) -> bytes:
        """Write a request with a JSON body as it goes over the wire."""
        fields = {"path": self.path, "host": self.host, "port": self.port, "key": self.key, "length": len(body)}
        return _POST.format(**fields).encode() + body

    def get(self) -> bytes:
        """Write a request without a body as it goes over the wire."""
        return f"GET {self.path} HTTP/1.1\r\nhost: {self.host}:{self.port}\r\nauthorization: Bearer {self.key}\r\n\r\n".encode()


class Reply(Struct):
    """What came back for one request. Times are in seconds since sending; `status` 0 with an `error` means no whole answer."""

    status: int = 0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    e2e_s: float = 0.0
    error: str = ""


class Connection:
    """A connection to one server; opened when it is first needed, and again after the server closed it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._wire: _Wire | None = None

    async def close(self) -> None:
        """Close it, in whatever state it is."""
        if self._wire:
            self._wire.transport.abort()
            await self._wire.lost.wait()
        self._wire = None

    async def ask(self, request: bytes, timeout_s: float) -> Reply:
        """Send one request and take its whole answer. Never raises for what the server does: that is in `Reply.error`."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(request)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            await self.close()
            return Reply(e2e_s=time.perf_counter() - began, error=repr(error)[:200])

    async def _exchange(self, request: bytes) -> Reply:
        began = time.perf_counter()
        kept = self._wire is not None and not self._wire.lost.is_set()
        if self._wire is None or not kept:
            address = self._target.host, self._target.port
            _, self._wire = await asyncio.get_running_loop().create_connection(_Wire, *address)
        try:
            reply = await self._wire.send(request, began)
        except ConnectionResetError:
            if not kept:
                raise EOFError("the server closed the connection without an answer") from None
            await self.close()  # a server may close an idle connection whenever it likes
            return await self._exchange(request)
        if not self._wire.keep_alive:
            await self.close()
        return reply


class _Wire(asyncio.Protocol):
    """The connection as the event loop sees it; also what the parser calls back."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.keep_alive = True
        self._done: asyncio.Future[Reply] | None = None

    def send(self, request: bytes, began: float) -> asyncio.Future[Reply]:
        """Send a request; the future brings its reply, or `ConnectionResetError` when not one byte came back."""
        self._began, self._now = began, 0.0
        self._framed = False
        self._reply = Reply()
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where requests go."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class

    def data_received(self, data: bytes) -> None:
        """Note the time, then let the parser cut the bytes."""
        self._now = time.perf_counter() - self._began
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ValueError(f"this is no HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer that only the end of the connection ends; any other was cut off."""
        self.lost.set()
        if self._now == 0.0:
            self._fail(ConnectionResetError())
        elif self._reply.status and not self._framed and exc is None:
            self.keep_alive = False
            self._finish()
        else:
            self._fail(EOFError(f"the answer ended early, after {sum(len(data) for _, data in self._reply.pieces)} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Notice a header that says where the body ends."""
        self._framed |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """Notice the status."""
        self._reply.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        self._reply.pieces.append((self._now, body))

    def on_message_complete(self) -> None:
        """Hand over the reply."""
        self.keep_alive = self._parser.should_keep_alive()
        self._finish()

    def _finish(self) -> None:
        self._reply.e2e_s = self._now
        if self._done and not self._done.done():
            self._done.set_result(self._reply)

    def _fail(self, error: Exception) -> None:
        if self._done and not self._done.done():
            self._done.set_exception(error)
