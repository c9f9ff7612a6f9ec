"""One timer for all the waits of a connection, one after another.

A timer per wait is created and cancelled for every chunk of a stream, and almost none of them ever fires. This one is left
running when a wait ends; when it fires it looks whether a wait is due, and goes on for the rest of it if not.
"""

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls back when a wait that was started has not been stopped in time.

    Args:
        loop: whose clock counts.
        on_expiry: called once per wait that expires; the wait is over by then.
    """

    __slots__ = ("_at", "_loop", "_on_expiry", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expiry: Callable[[], None]) -> None:
        self._loop = loop
        self._on_expiry = on_expiry
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Begin a wait, in place of one that runs."""
        self._at = at = self._loop.time() + seconds
        timer = self._timer
        if timer is None:
            self._timer = self._loop.call_at(at, self._fire)
        elif timer.when() > at:
            timer.cancel()
            self._timer = self._loop.call_at(at, self._fire)

    def stop(self) -> None:
        """End the wait. The timer goes on, for the next one."""
        self._at = None

    def cancel(self) -> None:
        """End the wait and the timer, so that nothing is referred to any more."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        at = self._at
        if at is None:
            return
        if self._loop.time() < at:
            self._timer = self._loop.call_at(at, self._fire)
            return
        self._at = None
        self._on_expiry()
