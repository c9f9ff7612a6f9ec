"""A request as bytes, checked so that it cannot become two.

httpx builds the headers; whoever called httpx may have taken them from a client. A line break in a value would start a header
of the client's choice, and a wrong length would make the server read part of this request as the next one: both are refused.
Source: RFC 9112, sections 3 to 7.
"""

from collections.abc import AsyncGenerator

import httpx
from msgspec import Struct

# RFC 9110, section 5.6.2.
_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FRAMING = (b"content-length", b"transfer-encoding")
_LAST_CHUNK = b"0\r\n\r\n"


class Message(Struct, frozen=True):
    """What goes over the wire.

    Attributes:
        data: the head, with the whole body when that is known.
        stream: the rest of the body, when it comes bit by bit.
        length: how many bytes `stream` must yield; None for a chunked body.
        is_head: the response will have no body, whatever its headers say.
    """

    data: bytes
    stream: httpx.AsyncByteStream | None = None
    length: int | None = None
    is_head: bool = False

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield the rest of the body as it is to be sent.

        Raises:
            httpx.LocalProtocolError: it is longer or shorter than the head says.
        """
        if self.stream is None:
            return
        length = self.length
        sent = 0
        async for part in self.stream:
            sent += len(part)
            if length is None:
                if part:
                    yield _chunk(part)
            elif sent > length:
                raise httpx.LocalProtocolError(f"the body has more than the {length} bytes of its Content-Length")
            else:
                yield part
        if length is None:
            yield _LAST_CHUNK
        elif sent < length:
            raise httpx.LocalProtocolError(f"the body has {sent} bytes, its Content-Length says {length}")


def encode(request: httpx.Request) -> Message:
    """Serialise a request.

    Raises:
        httpx.LocalProtocolError: a header cannot be sent as it is, or the headers do not fit the body.
    """
    parts = [request.method.encode("ascii", "replace"), b" ", request.url.raw_path, b" HTTP/1.1\r\n"]
    framing: list[tuple[bytes, bytes]] = []
    num_hosts = 0
    headers = request.headers.raw
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
        if not name or name.translate(None, _TOKEN):
            raise httpx.LocalProtocolError(f"{name[:100]!r} is no name for a header")
        lowered = name.lower()
        if lowered == b"host":
            num_hosts += 1
        elif lowered in _FRAMING:
            framing.append((lowered, value))
    parts.append(b"\r\n")
    head = b"".join(parts)
    # As many line breaks as were put there: none came in with a value, the method or the path.
    num_lines = len(headers) + 2
    if head.count(b"\n") != num_lines or head.count(b"\r") != num_lines or b"\0" in head:
        raise httpx.LocalProtocolError("a header or the request line contains a line break or NUL")
    if num_hosts != 1:
        raise httpx.LocalProtocolError(f"the request has {num_hosts} Host headers")
    if len(framing) > 1:
        raise httpx.LocalProtocolError("the request has more than one Content-Length or Transfer-Encoding")
    kind, value = framing[0] if framing else (b"", b"")
    if kind == b"transfer-encoding" and value.lower() != b"chunked":
        raise httpx.LocalProtocolError(f"Transfer-Encoding {value[:100]!r} cannot be sent, only chunked")
    if isinstance(request.stream, httpx.ByteStream):
        return _with_body(head, request.read(), kind, value, request.method == "HEAD")
    return _with_stream(head, request.stream, kind, value, request.method == "HEAD")


def _with_body(head: bytes, body: bytes, kind: bytes, value: bytes, is_head: bool) -> Message:
    if kind == b"transfer-encoding":
        data = head + (_chunk(body) if body else b"") + _LAST_CHUNK
    elif value == b"%d" % len(body) or (not kind and not body):
        data = head + body
    else:
        raise httpx.LocalProtocolError(f"the body has {len(body)} bytes, its Content-Length says {value[:100]!r}")
    return Message(data, is_head=is_head)


def _with_stream(head: bytes, stream: object, kind: bytes, value: bytes, is_head: bool) -> Message:
    if not isinstance(stream, httpx.AsyncByteStream):
        raise httpx.LocalProtocolError("the body is a synchronous stream")
    if kind == b"transfer-encoding":
        return Message(head, stream, None, is_head)
    if not value.isdigit():
        raise httpx.LocalProtocolError("a streamed body needs a Content-Length or Transfer-Encoding: chunked")
    return Message(head, stream, int(value), is_head)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
