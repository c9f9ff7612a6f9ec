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
        if scope["type"] != "http" or not _has_body(scope):
            return await self._app(scope, receive, send)
        try:
            self._check_headers(scope)
            body = await self._read(receive)
        except ApiError as refused:
            return await _refuse(refused, scope, receive, send)
        if body is None:
            return None
        pending: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replay() -> Message:
            nonlocal pending
            if pending is not None:
                message, pending = pending, None
                return message
            return await receive()

        return await self._app(scope, replay, send)

    def _check_headers(self, scope: Scope) -> None:
        encoding = (header(scope, b"content-encoding") or "identity").strip().lower()
        if encoding != "identity":
            raise UnsupportedMediaType(f"Content-Encoding '{encoding[:40]}' is not supported: send plain JSON.", headers=_CLOSE)
        declared = header(scope, b"content-length")
        if declared is not None and declared.isdecimal() and int(declared[:20]) > self._max_bytes:
            raise self._too_large(f"{int(declared[:20])} bytes")

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


def _has_body(scope: Scope) -> bool:
    return any(
        (name == b"content-length" and value != b"0") or name == b"transfer-encoding" for name, value in scope["headers"]
    )


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
