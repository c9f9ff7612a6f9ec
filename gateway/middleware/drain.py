"""Lets running requests end and takes no new ones while the server goes down.

Health checks and scrapes are answered to the end, because that is how a load balancer learns to go elsewhere.
"""

import asyncio

from gateway.errors import NotReady
from gateway.middleware.asgi import ASGIApp, Receive, Scope, Send
from gateway.middleware.reply import send_error

_ALWAYS_SERVED = ("/health", "/metrics")
_REFUSAL_HEADERS = {"retry-after": "2", "connection": "close"}


class DrainState:
    """Whether the server is going down, and how many requests still run. Belongs to one event loop."""

    def __init__(self) -> None:
        self.draining = False
        self.active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        """Refuse new requests from now on."""
        self.draining = True

    def enter(self) -> None:
        """Count a request in."""
        self.active += 1
        self._idle.clear()

    def leave(self) -> None:
        """Count a request out."""
        self.active -= 1
        if self.active == 0:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Return when no request runs."""
        await self._idle.wait()


class Drain:
    """Counts requests, and refuses them with 503 while the server drains."""

    def __init__(self, app: ASGIApp, state: DrainState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["path"].startswith(_ALWAYS_SERVED):
            return await self._app(scope, receive, send)
        if self._state.draining:
            text = "The server is draining: it goes down and takes no new requests. Try again in a moment."
            return await send_error(scope, send, NotReady(text, code="engine_overloaded", headers=_REFUSAL_HEADERS))
        self._state.enter()
        try:
            return await self._app(scope, receive, send)
        finally:
            self._state.leave()
