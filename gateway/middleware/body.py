"""Reads request bodies whole, within a size and a time, before anything else looks at them.

All endpoints need their whole body anyway; reading it here means one place where a huge, an endless, a slow or a compressed
body is refused. A refusal first answers and then keeps reading for a moment (nginx calls it a lingering close): closing at once
would reset the connection, and the client would never see why.
"""

import asyncio
from contextlib import suppress

from gateway.errors import ApiError, BodyTooLarge, InvalidRequest, UnsupportedMediaType
from gateway.middleware.asgi import ASGIApp, Message, Receive, Scope, Send
from gateway.middleware.reply import error_messages, header

_LINGER_S = 5.0


_CLOSE = {"connection": "close"}


class BodyTooSlow(InvalidRequest):
    """The body did not arrive in time."""

    status = 408
    code = "request_timeout"


class Body:
    """Hands the application its body in one piece.

    Args:
        max_bytes: largest accepted body.
        timeout_s: time within which the body must have arrived.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            is_announced = self._announces_body(scope)
            body = await self._read(receive) if is_announced else b""
        except ApiError as refused:
            return await _refuse(refused, scope, receive, send)
        if body is None:
            return None
        if not is_announced:
            return await self._app(scope, receive, send)
        pending: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replay() -> Message:
            nonlocal pending
            if pending is not None:
                message, pending = pending, None
                return message
            return await receive()

        return await self._app(scope, replay, send)

    def _announces_body(self, scope: Scope) -> bool:
        """Whether a body comes, by the headers. Raises what they alone are refused for."""
        length, encoding, is_chunked = b"0", b"", False
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
            elif name == b"content-encoding":
                encoding = value.strip().lower()
            elif name == b"transfer-encoding":
                is_chunked = True
        if length == b"0" and not is_chunked:
            return False
        if encoding not in (b"", b"identity"):
            text = f"Content-Encoding '{encoding[:40].decode('latin-1')}' is not supported: send plain JSON."
            raise UnsupportedMediaType(text, headers=_CLOSE)
        if length.isdigit() and int(length[:20]) > self._max_bytes:
            raise self._too_large(f"{int(length[:20])} bytes")
        return True

    def _too_large(self, size: str) -> BodyTooLarge:
        return BodyTooLarge(f"The request body has {size}, the limit is {self._max_bytes} bytes.", headers=_CLOSE)

    async def _read(self, receive: Receive) -> bytes | None:
        """Read the body; None when the client left before its end."""
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    pieces.append(message["body"])
                    size += len(message["body"])
                    if size > self._max_bytes:
                        raise self._too_large(f"more than {self._max_bytes} bytes")
                    if not message["more_body"]:
                        return b"".join(pieces)
        except TimeoutError:
            text = f"The request body did not arrive within {self._timeout_s:g} s ({size} bytes came)."
            raise BodyTooSlow(text, headers=_CLOSE) from None


async def _refuse(refused: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    start, body = error_messages(scope, refused)
    await send(start)
    await send({**body, "more_body": True})
    if header(scope, b"expect") is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while True:
                    message = await receive()
                    if message["type"] != "http.request" or not message["more_body"]:
                        break
    await send({"type": "http.response.body", "body": b"", "more_body": False})
