"""How a middleware reads a header and sends an error of its own, below litestar and in the same shape as everywhere."""

from collections.abc import Iterable

from gateway.errors import ApiError, error_body
from gateway.middleware.asgi import Message, Scope, Send

Header = tuple[bytes, bytes]


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first value of a header, `name` in lower case; None when it was not sent."""
    headers: Iterable[Header] = scope["headers"]
    return next((value.decode("latin-1") for key, value in headers if key == name), None)


def error_messages(scope: Scope, error: ApiError) -> tuple[Message, Message]:
    """Build the two ASGI messages of an error response; the second one completes it."""
    body = error_body(error, scope)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    start: Message = {"type": "http.response.start", "status": error.status, "headers": headers}
    return start, {"type": "http.response.body", "body": body, "more_body": False}


async def send_error(scope: Scope, send: Send, error: ApiError) -> None:
    """Send a complete error response."""
    for part in error_messages(scope, error):
        await send(part)
