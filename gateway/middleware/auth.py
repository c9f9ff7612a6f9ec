"""Asks for an API key, when the gateway has any.

Runs before the body is read and before a route is looked for, so that a stranger learns nothing. Only SHA-256 digests of the
keys are kept; every comparison looks at every digest and takes the same time for each. Public are: health checks, preflights
(answered further out) and the files of the console, which hold nothing secret and must load before a person can enter a key.

A key is also a tenant: requests with different keys never share cached prefixes. Without keys there is one tenant, `""`.
"""

import hmac
from collections.abc import Collection
from hashlib import sha256

from gateway.errors import InvalidRequest
from gateway.middleware.asgi import ASGIApp, Receive, Scope, Send
from gateway.middleware.reply import header, send_error

_CHALLENGE = {"www-authenticate": 'Bearer realm="baton"'}
_TENANT_BYTES = 16


class Unauthorized(InvalidRequest):
    """No key, or a wrong one."""

    status = 401
    code = "invalid_api_key"


class Auth:
    """Lets a request in that carries a key as `Authorization: Bearer` or as `X-Api-Key`, and sets `scope["state"]["tenant"]`.

    Args:
        digests: SHA-256 digests of the keys; empty means that no key is asked for.
        public_files: paths of the console's files.
    """

    def __init__(self, app: ASGIApp, digests: Collection[bytes], public_files: Collection[str] = ()) -> None:
        self._app = app
        self._digests = tuple(digests)
        self._public_files = frozenset(public_files)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or not self._digests or self._is_public(scope):
            return await self._app(scope, receive, send)
        key = _presented_key(scope)
        if key is None:
            text = "No API key was given. Send it as 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'."
            return await send_error(send, Unauthorized(text, headers=_CHALLENGE))
        presented = sha256(key.encode("latin-1")).digest()
        if not self._knows(presented):
            return await send_error(send, Unauthorized("The API key is not valid.", headers=_CHALLENGE))
        scope.setdefault("state", {})["tenant"] = presented[:_TENANT_BYTES].hex()
        return await self._app(scope, receive, send)

    def _is_public(self, scope: Scope) -> bool:
        path = scope["path"]
        if path == "/health" or path.startswith("/health/"):
            return True
        return scope["method"] in ("GET", "HEAD") and path in self._public_files

    def _knows(self, presented: bytes) -> bool:
        known = False
        for digest in self._digests:
            known |= hmac.compare_digest(presented, digest)
        return known


def _presented_key(scope: Scope) -> str | None:
    authorization = header(scope, b"authorization")
    if authorization is not None:
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() == "bearer" and key.strip():
            return key.strip()
    return header(scope, b"x-api-key") or None
