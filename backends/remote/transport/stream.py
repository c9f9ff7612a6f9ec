"""The body of a response while it arrives: a buffer between a connection that pushes and a caller who pulls."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import httpx

from backends.remote.transport.deadline import Deadline
from backends.remote.transport.parser import ResponseHead


class Source(Protocol):
    """The connection, as its response sees it."""

    deadline: Deadline

    def close(self) -> None:
        """Give the connection up: the rest of the response is not wanted."""
        ...

    def resume_reading(self) -> None:
        """Go on after a pause, or do nothing."""
        ...


class ResponseStream(httpx.AsyncByteStream):
    """Body bytes in order; one task reads at a time.

    The read timeout is looked up in `timeouts` (`request.extensions["timeout"]`) whenever a wait begins, so a caller may change
    `timeouts["read"]` between two reads: a long one for the first token, a short one for the next. A wait ends with body bytes,
    the end or an error; chunk framing alone does not extend it. Cancelling a read, or closing the stream before its end, closes
    the connection: a read that is to be tried again must be shielded or given a read timeout instead.

    Attributes (the connection's side):
        chunks: body parts that arrived and were not read.
        buffered_bytes: received since the last read, chunk framing included.
        head: set once the response head is complete.
        is_complete: the response has ended, and has no connection any more.
        error: why it will not be completed.
    """

    def __init__(self, source: Source, loop: asyncio.AbstractEventLoop, timeouts: Mapping[str, float | None]) -> None:
        self.chunks: list[bytes] = []
        self.buffered_bytes = 0
        self.head: ResponseHead | None = None
        self.is_complete = False
        self.error: Exception | None = None
        self._source = source
        self._loop = loop
        self._timeouts = timeouts
        self._waiter: asyncio.Future[None] | None = None

    async def read_chunk(self) -> bytes:
        """Take everything that has arrived, after waiting for something if need be; empty at the end.

        Raises:
            httpx.ReadTimeout: nothing came for the read timeout.
            httpx.ReadError, httpx.RemoteProtocolError: the body broke off; what had come before was handed over before.
            httpx.StreamClosed: it was closed.
        """
        chunks = self.chunks
        while not chunks:
            if self.is_complete:
                return b""
            if self.error is not None:
                raise self.error
            await self.wait()
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self.buffered_bytes = 0
        if not self.is_complete:
            self._source.resume_reading()
        return data

    def __aiter__(self) -> "ResponseStream":
        return self

    async def __anext__(self) -> bytes:
        data = await self.read_chunk()
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Let go of what is left. May be called twice, and in any state."""
        self.chunks.clear()
        if not self.is_complete and self.error is None:
            self.error = httpx.StreamClosed()
            self._source.close()

    async def wait(self) -> None:
        """Wait for `wake`, which also an expired read timeout leads to."""
        waiter = self._waiter = self._loop.create_future()
        deadline = self._source.deadline
        timeout_s = self._timeouts.get("read")
        if timeout_s is not None:
            deadline.start(timeout_s)
        try:
            await waiter
        except asyncio.CancelledError:
            await self.aclose()
            raise
        finally:
            self._waiter = None
            deadline.stop()

    def wake(self) -> None:
        """End a wait, if there is one."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """Let the next read that finds nothing raise `error`."""
        self.error = error
        self.wake()
