"""Lets running requests end and takes no new ones while the server goes down.

Health checks and scrapes are answered to the end, because that is how a load balancer learns to go elsewhere.

Every request belongs to the epoch in which it came. A reload begins a new one, and learns from the old ones when all that began
before it has ended.
"""

import asyncio

from gateway.errors import NotReady
from gateway.middleware.asgi import ASGIApp, Receive, Scope, Send
from gateway.middleware.reply import send_error

_ALWAYS_SERVED = ("/health", "/metrics")
_REFUSAL_HEADERS = {"retry-after": "2", "connection": "close"}


class Epoch:
    """The requests that came between two reloads, `active` of which still run."""

    __slots__ = ("_ended", "_is_over", "active")

    def __init__(self) -> None:
        self.active = 0
        self._is_over = False
        self._ended = asyncio.Event()

    async def wait_ended(self) -> None:
        """Return when no request of it runs, and none can come any more."""
        await self._ended.wait()

    def leave(self) -> None:
        """Count a request out."""
        self.active -= 1
        if self._is_over and not self.active:
            self._ended.set()

    def close(self) -> None:
        """From now on requests belong to another one."""
        self._is_over = True
        if not self.active:
            self._ended.set()


class DrainState:
    """Whether the server is going down, and how many requests still run. Belongs to one event loop."""

    def __init__(self) -> None:
        self.draining = False
        self.active = 0
        self._epoch = Epoch()
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        """Refuse new requests from now on."""
        self.draining = True

    def enter(self) -> Epoch:
        """Count a request in, and say which epoch it belongs to."""
        if not self.active:
            self._idle.clear()
        self.active += 1
        self._epoch.active += 1
        return self._epoch

    def leave(self, epoch: Epoch) -> None:
        """Count a request of this epoch out."""
        epoch.leave()
        self.active -= 1
        if self.active == 0:
            self._idle.set()

    def turn(self) -> Epoch:
        """Begin a new epoch, and return the one that is over."""
        epoch, self._epoch = self._epoch, Epoch()
        epoch.close()
        return epoch

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
        epoch = self._state.enter()
        try:
            return await self._app(scope, receive, send)
        finally:
            self._state.leave(epoch)
