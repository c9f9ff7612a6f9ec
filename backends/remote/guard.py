"""A time limit around one wait after another, for a price that a hot path can pay.

`asyncio.timeout` sets and clears a timer for each wait. A stream waits hundreds of times, and its limit only moves further
away: so one timer is left running, and looks at the limit of the moment when it goes off.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from backends.errors import BackendError
from backends.remote.errors import upstream_timeout

T = TypeVar("T")


class Guard:
    """Bounds the waits of one task at a time. `interrupt` ends the present and all later waits from outside."""

    __slots__ = ("_cancelling", "_interruption", "_late", "_loop", "_outcome", "_task", "_timer", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._until = 0.0
        self._late = ""
        self._outcome: BackendError | None = None
        self._interruption: BackendError | None = None

    async def wait(self, work: Awaitable[T], until: float, late: str) -> T:
        """Await `work`, but not beyond `until` (seconds on the loop's clock).

        Raises:
            TimedOut: it took longer; the message is `late`.
            BackendError: what `interrupt` was given.
        """
        if self._interruption is not None:
            _drop(work)
            raise self._interruption
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._until, self._late, self._outcome = until, late, None
        if self._timer is None or self._timer.when() > until:
            self._set_timer(until)
        try:
            return await work
        except asyncio.CancelledError:
            # Whoever else cancelled the task must still see that.
            if self._outcome is not None and task.uncancel() <= self._cancelling:
                raise self._outcome from None
            raise
        finally:
            self._task = None

    def interrupt(self, error: BackendError) -> None:
        """End the present wait and all later ones by `error`."""
        self._interruption = error
        if self._task is not None:
            self._cancel(error)

    def stop(self) -> None:
        """Clear the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, when: float) -> None:
        self.stop()
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._task is None or self._outcome is not None:
            return
        if self._until > self._loop.time():
            self._set_timer(self._until)
        else:
            self._cancel(upstream_timeout(self._late))

    def _cancel(self, error: BackendError) -> None:
        if self._outcome is None and self._task is not None:
            self._outcome = error
            self._task.cancel()


def _drop(work: Awaitable[object]) -> None:
    """Close a coroutine that will never run, which would warn otherwise."""
    close = getattr(work, "close", None)
    if close is not None:
        close()
