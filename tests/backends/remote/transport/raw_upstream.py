"""A TCP server that sends exactly the bytes a test wants, when it wants them."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import cast

import httpx


class Peer:
    """The server's end of one connection. `number` counts connections from 1."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """Read one request, as it is on the wire; empty when the client has closed."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        lowered = head.lower()
        if b"transfer-encoding: chunked" in lowered:
            return head + await self.reader.readuntil(b"0\r\n\r\n")
        _, found, rest = lowered.partition(b"content-length: ")
        return head + (await self.reader.readexactly(int(rest.split(b"\r\n")[0])) if found else b"")

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_bytewise(self, data: bytes) -> None:
        for i in range(len(data)):
            self.writer.write(data[i : i + 1])
            await asyncio.sleep(0)

    async def gone(self) -> None:
        """Return once the client has closed."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def stop_reading(self) -> None:
        """Take no more of what the client sends."""
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def reset(self) -> None:
        """Close with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class RawUpstream:
    """Runs `script` for every connection, which is closed when the script returns."""

    def __init__(self, script: Script, ssl_context: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.num_connections = 0
        self.num_open = 0
        self.failures: list[Exception] = []
        self._ssl_context = ssl_context
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "RawUpstream":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._ssl_context)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._ssl_context else 'http'}://127.0.0.1:{self.port}/v1/x?y=1"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if error is None and self.failures:
            raise self.failures[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_connections += 1
        self.num_open += 1
        try:
            await self.script(Peer(self.num_connections, reader, writer))
        except asyncio.CancelledError:
            pass
        except Exception as failure:
            self.failures.append(failure)
        finally:
            self._tasks.discard(task)
            self.num_open -= 1
            writer.close()


def answer(body: bytes = b"ok", *headers: bytes) -> bytes:
    """A response with a length."""
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), *headers, b"", body])


async def echo_forever(peer: Peer) -> None:
    """Answer every request with `ok`."""
    while await peer.request():
        await peer.send(answer())


def sending(data: bytes, *, and_close: bool = False) -> Script:
    """Answer every request with `data`, and perhaps close after the first."""

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(data)
            if and_close:
                return

    return script


def request(
    url: str, content: bytes | None = b'{"a":1}', method: str = "POST", read: float | None = 10.0, **timeouts: float
) -> httpx.Request:
    """A request with generous timeouts, but for those that are named."""
    timeout = {"connect": 5.0, "pool": 5.0, "write": 5.0, "read": read, **timeouts}
    return httpx.Request(method, url, content=content, extensions={"timeout": timeout})


async def body_of(response: httpx.Response) -> bytes:
    """Everything, in one."""
    return b"".join([chunk async for chunk in response.aiter_raw()])
