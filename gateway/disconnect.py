"""Stops work when its client leaves.

ASGI servers report a closed connection through `receive`, and nobody calls `receive` while a handler awaits an engine: without
a watcher a handler runs to its end for a client that left long ago (measured with litestar and uvicorn, for plain answers and
for streams before their first event). Our own HTTP protocol tells at once, by a `ConnectionEnd` in the scope, and then nobody
has to watch: two tasks less per request. Knows ASGI messages, nothing of HTTP or models.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, TypeVar

from gateway.errors import ClientGone

logger = logging.getLogger("gateway.disconnect")

CLOSE_TIMEOUT_S = 10.0
"""How long a backend may take to let go of a cancelled request before the connection stops waiting for it."""

CONNECTION_END = "baton.connection_end"
"""Where a server puts its `ConnectionEnd` into the scope."""

T = TypeVar("T")


class ConnectionEnd:
    """Cancels the tasks that serve a connection when it is lost. The server calls `lost`, once."""

    __slots__ = ("_tasks", "is_lost")

    def __init__(self) -> None:
        self.is_lost = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def lost(self) -> None:
        """Cancel whatever works for nobody now."""
        self.is_lost = True
        for task in self._tasks:
            task.cancel()

    async def guard(self, work: Awaitable[T]) -> T:
        """Await `work` in the current task.

        Raises:
            ClientGone: the connection was lost first, and `work` has been cancelled.
        """
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.is_lost:
                task.cancel()
            return await work
        except asyncio.CancelledError:
            if self.is_lost and task.uncancel() == 0:
                raise ClientGone("The client closed the connection.") from None
            raise
        finally:
            self._tasks.discard(task)


async def until_gone(scope: Mapping[str, object], receive: Callable[[], Awaitable[Any]], work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, or until the client leaves. The request body must have been read before.

    Raises:
        ClientGone: the client left first. Whatever `work` raises is passed on.
    """
    end = scope.get(CONNECTION_END)
    return await (end.guard(work) if isinstance(end, ConnectionEnd) else run_until_disconnect(receive, work))


async def run_until_disconnect(receive: Callable[[], Awaitable[Any]], work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a task of its own; cancel it when the client leaves or this call is cancelled.

    The request body must have been read before. The task is cancelled exactly once and then left to close its iterators in
    peace: cancelling the caller a second time does not interrupt that.

    Raises:
        ClientGone: the client left first. Whatever `work` raises is passed on.
    """
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone("The client closed the connection.")
    finally:
        await _stop(task, watcher)


async def _gone(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(*tasks: asyncio.Task[Any]) -> None:
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        _, stuck = await asyncio.wait(running, timeout=CLOSE_TIMEOUT_S)
        if stuck:
            logger.error("a cancelled request did not end within %s s", CLOSE_TIMEOUT_S)
    for task in tasks:
        # Looking at the exception marks it as seen; the interesting one was raised by `task.result()`.
        if task.done() and not task.cancelled():
            task.exception()
