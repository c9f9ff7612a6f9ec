"""Which web pages may call the gateway (Fetch standard, CORS protocol).

The default lets pages served from this machine in and nobody else. Headers go on every response, errors included, because a
page cannot read an error without them. Requested headers are reflected: SDKs in browsers send `x-stainless-*`, whose list
changes. Credentials (cookies) are never allowed; Baton has none.
"""

import re
from collections.abc import Sequence

from gateway.middleware.asgi import ASGIApp, Message, Receive, Scope, Send
from gateway.middleware.reply import Header, header

LOCALHOST = "localhost"
"""In `cors_origins`: any page served from this machine, on any port."""

_LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\]|[a-z0-9-]+\.localhost)(:[0-9]{1,5})?", re.IGNORECASE)
_METHODS = b"GET, HEAD, POST, DELETE, OPTIONS"
_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_EXPOSED = (
    b"x-request-id, request-id, openai-processing-ms, retry-after, retry-after-ms, x-should-retry, "
    b"x-baton-deployment, x-baton-attempts, x-baton-fallback, x-baton-fallback-reason, x-baton-canary, x-baton-cache, age, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
_MAX_AGE_S = b"600"


class Cors:
    """Answers every OPTIONS request, and marks every other response.

    Args:
        origins: exact origins (`https://app.example`), `localhost` for pages of this machine, `*` for every page.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._any = "*" in origins
        self._local = LOCALHOST in origins
        self._exact = frozenset(origin.rstrip("/").lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        origin = header(scope, b"origin")
        allowed = origin is not None and self._allows(origin)
        if scope["method"] == "OPTIONS":
            headers = [(b"allow", _METHODS), *self._answer(origin, allowed), *(_preflight(scope) if allowed else ())]
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return None
        answer = self._answer(origin, allowed)

        async def marking_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *answer]
            await send(message)

        return await self._app(scope, receive, marking_send)

    def _allows(self, origin: str) -> bool:
        return self._any or origin.lower() in self._exact or (self._local and _LOCAL_ORIGIN.fullmatch(origin) is not None)

    def _answer(self, origin: str | None, allowed: bool) -> list[Header]:
        headers = [] if self._any else [(b"vary", b"Origin")]
        if allowed and origin is not None:
            value = b"*" if self._any else origin.encode("latin-1")
            headers += [(b"access-control-allow-origin", value), (b"access-control-expose-headers", _EXPOSED)]
        return headers


def _preflight(scope: Scope) -> list[Header]:
    headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _MAX_AGE_S)]
    requested = header(scope, b"access-control-request-headers")
    if requested and _HEADER_NAMES.fullmatch(requested):
        headers.append((b"access-control-allow-headers", requested.encode("latin-1")))
    if header(scope, b"access-control-request-private-network") == "true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers
