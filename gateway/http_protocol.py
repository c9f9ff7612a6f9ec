"""uvicorn's HTTP/1.1 protocol with bounds on what comes before the body, and with errors in our shape.

httptools itself takes headers of any size, for as long as a client likes to send them. Source: uvicorn's `HttpToolsProtocol`,
whose parser callbacks are overridden here.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.disconnect import CONNECTION_END, ConnectionEnd
from gateway.errors import InvalidRequest, error_body
from gateway.joined_writes import JoinedWrites

MAX_HEAD_BYTES = 64 * 1024
_TOO_LARGE = f"The request line and headers exceed {MAX_HEAD_BYTES} bytes."


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose request line and headers exceed 64 KiB, or do not end within `head_timeout_s`."""

    head_timeout_s = 30.0

    _in_head = True
    _advanced = False
    _unparsed_head_bytes = 0
    _header_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start waiting for a request."""
        super().connection_made(JoinedWrites(transport, self.loop))
        self._end = ConnectionEnd()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, and stop what works for this client."""
        self._stop_timer()
        super().connection_lost(exc)
        self._end.lost()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and see whether it still waits for the end of the headers."""
        self._advanced = False
        super().data_received(data)
        if not self._in_head or self._advanced or self.transport.is_closing():
            # What this read held belongs at least in part to a head or a body that is complete.
            return
        # Also a single header without an end is counted here: the parser reports it only when it is complete.
        self._unparsed_head_bytes += len(data)
        if self._unparsed_head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, _TOO_LARGE)
        elif self._head_timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        """Count from zero."""
        self._header_bytes = 0
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[CONNECTION_END] = self._end

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, or a trailer of a chunked body."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Note the end of the head."""
        self._in_head = False
        self._advanced = True
        self._unparsed_head_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect the next head."""
        super().on_message_complete()
        self._in_head = True
        self._advanced = True

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in the shape of every other error."""
        if self._header_bytes > MAX_HEAD_BYTES:
            self._refuse(431, _TOO_LARGE)
        else:
            self._refuse(400, msg)

    def _count(self, num_bytes: int) -> None:
        self._header_bytes += num_bytes
        if self._header_bytes > MAX_HEAD_BYTES:
            # The parser passes this on as an error of its own, which ends in `send_400_response`.
            raise ValueError(_TOO_LARGE)

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _give_up(self) -> None:
        self._head_timer = None
        if self._is_answering():
            # The next head has begun behind a request that is being answered: that answer may take its time.
            self._start_timer()
        elif self._unparsed_head_bytes:
            self._refuse(408, f"The request line and headers did not arrive within {self.head_timeout_s:g} s.")
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, message: str) -> None:
        if self._is_answering():
            # Pipelined behind a request that is being answered: an error here would land inside that answer.
            self.transport.close()
            return
        body = error_body(InvalidRequest(message))
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + body)
        self.transport.close()
