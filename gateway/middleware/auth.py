"""Finds out who sends a request, and asks for an API key when the gateway has any.

Runs before the body is read and before a route is looked for, so that a stranger learns nothing. A presented key is hashed at
once; nothing keeps it. Public are: health checks, preflights (answered further out) and the files of the console, which hold
nothing secret and must load before a person can enter a key.

What lies below `/admin` needs an admin key. Where no key exists at all it is open to this machine alone, so that the first key
can be made; a client elsewhere, a web page and a proxy are refused.
"""

import re
from collections.abc import Collection
from hashlib import sha256
from typing import Protocol

from gateway.errors import ApiError, InvalidRequest, NotReady
from gateway.identity import ANONYMOUS, Identity
from gateway.middleware.asgi import ASGIApp, Receive, Scope, Send
from gateway.middleware.local_client import is_local_client
from gateway.middleware.reply import send_error

_CHALLENGE = {"www-authenticate": 'Bearer realm="baton"'}
_BEARER = b"bearer "
# The router takes several slashes for one.
_ADMIN = re.compile(r"/*admin(?:/|\Z)")


class Unauthorized(InvalidRequest):
    """No key, or a wrong one."""

    status = 401
    code = "invalid_api_key"


class AdminOnly(InvalidRequest):
    """A good key, or none needed, but not for administration."""

    status = 403
    code = "admin_key_required"


class Keys(Protocol):
    """What is known about keys; answers from memory."""

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for."""
        ...

    @property
    def is_known(self) -> bool:
        """Whether all keys have been read, so that a key that is not found is wrong."""
        ...

    def find(self, digest: bytes) -> Identity | None:
        """Say whose key has this SHA-256 digest; None when no valid key has."""
        ...


class Auth:
    """Lets a request in that carries a key as `Authorization: Bearer` or as `X-Api-Key`.

    Sets `scope["state"]["identity"]` and, for what only separates caches, `scope["state"]["tenant"]`.

    Args:
        keys: whose key it is.
        public_files: paths of the console's files.
    """

    def __init__(self, app: ASGIApp, keys: Keys, public_files: Collection[str] = ()) -> None:
        self._app = app
        self._keys = keys
        self._public_files = frozenset(public_files)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            identity = self._identify(scope)
        except ApiError as refused:
            return await send_error(scope, send, refused)
        state = scope.setdefault("state", {})
        state["identity"] = identity
        state["tenant"] = identity.tenant
        return await self._app(scope, receive, send)

    def _identify(self, scope: Scope) -> Identity:
        path = scope["path"]
        is_admin_path = _ADMIN.match(path) is not None
        if self._keys.is_open:
            if is_admin_path and not is_local_client(scope):
                text = "While there are no API keys, only this machine may administer. Make one: baton keys create --admin"
                raise AdminOnly(text)
            return ANONYMOUS
        if self._is_public(scope["method"], path):
            return ANONYMOUS
        identity = self._known(_presented_key(scope))
        if is_admin_path and not identity.is_admin:
            raise AdminOnly("This API key is not an admin key.")
        return identity

    def _known(self, key: bytes | None) -> Identity:
        if key is None:
            text = "No API key was given. Send it as 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'."
            raise Unauthorized(text, headers=_CHALLENGE)
        identity = self._keys.find(sha256(key).digest())
        if identity is not None:
            return identity
        if self._keys.is_known:
            raise Unauthorized("The API key is not valid.", headers=_CHALLENGE)
        text = "API keys cannot be checked now: their store is down. Try again in a moment."
        raise NotReady(text, code="key_store_unavailable", headers={"retry-after": "2"})

    def _is_public(self, method: str, path: str) -> bool:
        if path == "/health" or path.startswith("/health/"):
            return True
        return method in ("GET", "HEAD") and path in self._public_files


def _presented_key(scope: Scope) -> bytes | None:
    """The first bearer token, else the first `X-Api-Key`; None when neither holds anything."""
    api_key: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            if value[: len(_BEARER)].lower() == _BEARER and (token := value[len(_BEARER) :].strip()):
                return bytes(token)
        elif name == b"x-api-key" and api_key is None:
            api_key = value
    return api_key or None
