"""What every answer to a model request says in its headers, and whole JSON responses. ASGI, without the framework's cost."""

from litestar.types import Receive, Scope, Send

from gateway.call import Call

Headers = list[tuple[bytes, bytes]]
API_VERSION = (b"openai-version", b"2020-10-01")
JSON_HEADERS: Headers = [(b"content-type", b"application/json"), API_VERSION]


def trail_headers(call: Call) -> Headers:
    """Say who answered and what it took: `x-baton-deployment`, and where it was not the plain case the reasons why."""
    trail = call.trail
    headers: Headers = []
    if trail.deployment:
        headers.append((b"x-baton-deployment", trail.deployment.encode()))
    if trail.attempts > 1:
        headers.append((b"x-baton-attempts", str(trail.attempts).encode()))
    if trail.fallback:
        headers.append((b"x-baton-fallback", trail.fallback.encode()))
        headers.append((b"x-baton-fallback-reason", trail.reason.encode()))
    if trail.canary:
        headers.append((b"x-baton-canary", b"true"))
    return headers


class BytesReply:
    """A complete response with these headers, content type included."""

    def __init__(self, body: bytes, headers: Headers) -> None:
        self._body = body
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [(b"content-length", str(len(self._body)).encode()), *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


class JsonReply(BytesReply):
    """A complete JSON response."""

    def __init__(self, body: bytes, headers: Headers | None = None) -> None:
        super().__init__(body, headers or JSON_HEADERS)
