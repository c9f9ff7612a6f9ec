"""One connection to an origin: a request out, its response in, then the next.

It knows nothing of pools but whom to tell that it is free or gone. Whatever goes wrong closes it; only a response that was
received whole, after a request that was sent whole, makes it free again.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Protocol, cast

import httpx

from backends.remote.transport.deadline import Deadline
from backends.remote.transport.parser import ResponseParser
from backends.remote.transport.request import Message
from backends.remote.transport.stream import ResponseStream

# Reading pauses when more than this waits for the caller.
_MAX_BUFFERED_BYTES = 256 * 1024

Origin = tuple[str, bytes, int | None]


class Owner(Protocol):
    """Who lends connections out."""

    def release(self, connection: "Connection") -> None:
        """Take a connection back that can serve another request."""
        ...

    def forget(self, connection: "Connection") -> None:
        """Take note that a connection serves no more; called once."""
        ...

    def lost(self, connection: "Connection") -> None:
        """Take note that its socket is closed; called once, after `forget`."""
        ...


class Connection(asyncio.Protocol):
    """The client's end. Lives on one event loop, serves one request at a time.

    Attributes:
        origin: scheme, host and port it leads to.
        deadline: the timer of whatever is waited for.
        is_closed: it serves no more.
        may_repeat: the last request met a connection that had served others and died without an answer, which is what a server
            that closes idle connections looks like: it can be tried again elsewhere.
    """

    def __init__(self, origin: Origin, parser: ResponseParser) -> None:
        self.origin = origin
        self.is_closed = False
        self.may_repeat = False
        self._parser = parser
        self._loop = asyncio.get_running_loop()
        self.deadline = Deadline(self._loop, self._expire)
        self._owner: Owner | None = None
        self._transport: asyncio.Transport | None = None
        self._stream: ResponseStream | None = None
        self._was_used = False
        self._is_sent = False
        self._is_paused = False
        self._can_write = True
        self._drained: asyncio.Future[None] | None = None

    def adopt(self, owner: Owner) -> None:
        """Belong to a pool from now on.

        Raises:
            httpx.ConnectError: it was lost already.
        """
        if self.is_closed:
            raise httpx.ConnectError("the connection was closed as soon as it was open")
        self._owner = owner

    async def exchange(self, message: Message, timeouts: Mapping[str, float | None]) -> httpx.Response:
        """Send a request, and return the response as soon as its head is there.

        Raises:
            httpx.TransportError: as `HttpTransport.handle_async_request` says.
        """
        assert self._transport is not None
        stream = self._stream = ResponseStream(self, self._loop, timeouts)
        self._parser.begin(stream.chunks, is_head=message.is_head)
        self.may_repeat = self._was_used and message.stream is None
        self._was_used = True
        self._transport.write(message.data)
        if message.stream is None:
            self._is_sent = True
            if not self._can_write:
                await self._drain(stream, timeouts)
        else:
            self._is_sent = False
            await self._send_frames(message, stream, timeouts)
        while stream.head is None:
            if stream.error is not None:
                raise stream.error
            await stream.wait()
        head = stream.head
        extensions = {"http_version": head.version, "reason_phrase": head.reason}
        return httpx.Response(head.status, headers=head.headers, stream=stream, extensions=extensions)

    def close(self) -> None:
        """Give it up at once, with whatever is on the way."""
        self._stream = None
        if not self.is_closed:
            self._end()
            if self._transport is not None:
                self._transport.abort()

    def fail(self, error: Exception) -> None:
        """Close it, and let whoever waits for the response get `error`."""
        stream = self._stream
        self.close()
        if stream is not None:
            stream.fail(error)
        self._wake_sender()

    def resume_reading(self) -> None:
        """Go on after a pause for a slow reader, or do nothing."""
        if self._is_paused:
            self._is_paused = False
            if self._transport is not None and not self.is_closed:
                self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hold the transport; the event loop calls this."""
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the response. Bytes that nobody asked for make the connection useless."""
        stream = self._stream
        if stream is None:
            self.close()
            return
        self.may_repeat = False
        parser = self._parser
        try:
            parser.feed(data)
        except httpx.RemoteProtocolError as error:
            stream.head = parser.head
            self.fail(error)
            return
        if parser.head is None:
            return
        stream.buffered_bytes += len(data)
        if stream.head is None:
            stream.head = parser.head
            self._wake_sender()
            stream.wake()
        if parser.is_complete:
            self._finish(stream)
        elif stream.chunks:
            if stream.buffered_bytes > _MAX_BUFFERED_BYTES and not self._is_paused:
                self._pause_reading()
            stream.wake()

    def eof_received(self) -> None:
        """Take the end of what the server sends; the transport closes by itself after that."""
        stream = self._stream
        if stream is None:
            self.close()
            return
        try:
            self._parser.feed_eof()
        except httpx.RemoteProtocolError as error:
            self.fail(error)
        else:
            self._finish(stream)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end, expected or not."""
        stream = self._stream
        if stream is not None:
            kind = httpx.ReadError if self._is_sent and self._drained is None else httpx.WriteError
            self.fail(kind(f"the connection was lost: {exc or 'closed'}"))
        elif not self.is_closed:
            self._end()
        self._transport = None
        if self._owner is not None:
            self._owner.lost(self)

    def pause_writing(self) -> None:
        """Send no more for now: the server takes nothing."""
        self._can_write = False

    def resume_writing(self) -> None:
        """Go on sending."""
        self._can_write = True
        self._wake_sender()

    async def _send_frames(self, message: Message, stream: ResponseStream, timeouts: Mapping[str, float | None]) -> None:
        try:
            async with aclosing(message.frames()) as frames:
                async for frame in frames:
                    # An answer that does not wait for the whole request ends the sending, and later the connection.
                    if stream.head is not None or stream.error is not None or self._transport is None:
                        return
                    self._transport.write(frame)
                    if not self._can_write:
                        await self._drain(stream, timeouts)
        except BaseException:
            self.close()
            raise
        # Everything may have been answered before the body had ended, which closed the connection.
        self._is_sent = True

    async def _drain(self, stream: ResponseStream, timeouts: Mapping[str, float | None]) -> None:
        """Wait until more can be written, an answer comes nevertheless, or the connection is lost."""
        if stream.head is not None or stream.error is not None:
            return
        waiter = self._drained = self._loop.create_future()
        timeout_s = timeouts.get("write")
        if timeout_s is not None:
            self.deadline.start(timeout_s)
        try:
            await waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._drained = None
            self.deadline.stop()

    def _wake_sender(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def _expire(self) -> None:
        if self._drained is not None:
            self.fail(httpx.WriteTimeout("the server took no more of the request within the write timeout"))
        elif self._stream is not None and self._stream.head is None:
            self.fail(httpx.ReadTimeout("the response head did not come within the read timeout"))
        else:
            self.fail(httpx.ReadTimeout("nothing of the response body came within the read timeout"))

    def _finish(self, stream: ResponseStream) -> None:
        """Let go of a complete response; the connection is free, or closed."""
        self._stream = None
        stream.is_complete = True
        transport = self._transport
        owner = self._owner
        is_idle = self._parser.can_reuse and self._is_sent and self._can_write
        if owner and is_idle and transport and not transport.is_closing() and not transport.get_write_buffer_size():
            self.resume_reading()
            owner.release(self)
        else:
            self.close()
        self._wake_sender()
        stream.wake()

    def _end(self) -> None:
        self.is_closed = True
        self.deadline.cancel()
        if self._owner is not None:
            self._owner.forget(self)
