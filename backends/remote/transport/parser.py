"""Bytes of a connection in, responses out, one at a time, whatever pieces the bytes come in.

llhttp (through httptools) knows the grammar and is strict: bare line feeds, folded headers, a length beside a transfer encoding
are errors. What it lacks is here: bounds, responses to HEAD, bodies that end with the connection, and bytes that follow the
response although nothing more was asked. Source: RFC 9112, sections 6 and 7.
"""

import httptools
import httpx
from msgspec import Struct


class ResponseHead(Struct, frozen=True):
    """Status line and headers of a final response; header names as they were sent."""

    status: int
    version: bytes
    reason: bytes
    headers: list[tuple[bytes, bytes]]


class ResponseParser:
    """Reads one response after another; `begin` comes before each.

    Args:
        max_head_bytes: for status line and headers together, interim responses and trailers included. The same number
            bounds what may come between two pieces of the body (chunk extensions).
        max_headers: how many headers and trailers there may be.

    Attributes:
        head: set once the final head is complete.
        is_complete: the response has ended.
        can_reuse: the server leaves the connection open, and has sent nothing but the response.
    """

    __slots__ = (
        "_chunks",
        "_head_bytes",
        "_headers",
        "_is_head",
        "_is_interim",
        "_max_head_bytes",
        "_max_headers",
        "_parser",
        "_reason",
        "_unproductive_bytes",
        "can_reuse",
        "head",
        "is_complete",
    )

    def __init__(self, *, max_head_bytes: int, max_headers: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._max_headers = max_headers
        self._parser = httptools.HttpResponseParser(self)
        self.begin([], is_head=False)

    def begin(self, chunks: list[bytes], *, is_head: bool) -> None:
        """Expect a response, and append its body to `chunks`. A response to HEAD has none."""
        self._chunks = chunks
        self._is_head = is_head
        self._is_interim = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._head_bytes = 0
        self._unproductive_bytes = 0
        self.head: ResponseHead | None = None
        self.is_complete = False
        self.can_reuse = False

    def feed(self, data: bytes) -> None:
        """Take what arrived.

        Raises:
            httpx.RemoteProtocolError: it is no HTTP/1.1, or beyond a bound.
        """
        self._unproductive_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.is_complete:
                self.can_reuse = False
                return
            cause = error.__context__
            if isinstance(cause, httpx.RemoteProtocolError):
                raise cause from None
            raise httpx.RemoteProtocolError(f"the server sent a malformed response: {error}") from None
        if self._unproductive_bytes > self._max_head_bytes and not self.is_complete:
            raise self._too_long()

    def feed_eof(self) -> None:
        """Take the end of the connection.

        Raises:
            httpx.RemoteProtocolError: the response should have gone on.
        """
        if self.is_complete:
            return
        if self.head is None:
            raise httpx.RemoteProtocolError("the server closed the connection without a complete response head")
        if _is_framed(self.head.headers):
            raise httpx.RemoteProtocolError("the server closed the connection inside the response body")
        self.is_complete = True

    def on_message_begin(self) -> None:
        """llhttp sees the first byte of a response."""
        if self.is_complete:
            raise httpx.RemoteProtocolError("the server sent more than one response")

    def on_status(self, reason: bytes) -> None:
        """llhttp has a part of the reason phrase."""
        self._reason += reason
        self._count(len(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp has a header, or a trailer (which is dropped)."""
        self._count(len(name) + len(value) + 4)
        headers = self._headers
        if len(headers) >= self._max_headers:
            raise httpx.RemoteProtocolError(f"the response has more than {self._max_headers} headers")
        headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """llhttp has seen the empty line."""
        self._count(len("HTTP/1.1 200 \r\n\r\n"))
        self._unproductive_bytes = 0
        parser = self._parser
        status = parser.get_status_code()
        if status < 200:
            self._skip_interim(status)
            return
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise httpx.RemoteProtocolError(f"the server speaks HTTP/{version}")
        self.head = ResponseHead(status, b"HTTP/1.1" if version == "1.1" else b"HTTP/1.0", self._reason, self._headers)
        self._headers = []
        if self._is_head:
            # llhttp would wait for the body that the headers describe, so this connection cannot be used again.
            self.is_complete = True
        else:
            self.can_reuse = parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """llhttp has a part of the body."""
        if self.is_complete:
            raise httpx.RemoteProtocolError("the server sent a body to HEAD")
        self._unproductive_bytes = 0
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        """llhttp has seen the last byte of a response."""
        if self._is_interim:
            self._is_interim = False
        else:
            self.is_complete = True

    def _skip_interim(self, status: int) -> None:
        if status == 101:
            raise httpx.RemoteProtocolError("the server changed the protocol, which nobody asked for")
        self._is_interim = True
        self._headers = []
        self._reason = b""

    def _count(self, num_bytes: int) -> None:
        self._head_bytes += num_bytes
        if self._head_bytes > self._max_head_bytes:
            raise self._too_long()

    def _too_long(self) -> httpx.RemoteProtocolError:
        where = "response head" if self.head is None else "chunk extensions or trailers of a response"
        return httpx.RemoteProtocolError(f"the {where} exceed {self._max_head_bytes} bytes")


def _is_framed(headers: list[tuple[bytes, bytes]]) -> bool:
    """Say whether the headers tell where the body ends, so that the end of the connection does not."""
    encodings = [value.lower() for name, value in headers if name.lower() == b"transfer-encoding"]
    if encodings:
        return encodings[-1].rpartition(b",")[2].strip() == b"chunked"
    return any(name.lower() == b"content-length" for name, _ in headers)
