"""Stops work when its client leaves.

ASGI servers report a closed connection through `receive`, and nobody calls `receive` while a handler awaits an engine: without
a watcher a handler runs to its end for a client that left long ago (measured with litestar and uvicorn, for plain answers and
for streams before their first event). Knows ASGI messages, nothing of HTTP or models.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar

from gateway.errors import ClientGone

logger = logging.getLogger("gateway.disconnect")

CLOSE_TIMEOUT_S = 10.0
"""How long a backend may take to let go of a cancelled request before the connection stops waiting for it."""

T = TypeVar("T")


async def run_until_disconnect(
    receive: Callable[[], Awaitable[Any]],
    work: Coroutine[Any, Any, T],
    idle: Callable[[], Awaitable[float]] | None = None,
) -> T:
    """Run `work` in a task of its own; cancel it when the client leaves or this call is cancelled.

    The request body must have been read before. The task is cancelled exactly once and then left to close its iterators in
    peace: cancelling the caller a second time does not interrupt that.

    Args:
        idle: called at once and then whenever the seconds it returned last have passed.

    Raises:
        ClientGone: the client left first. Whatever `work` raises is passed on.
    """
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_gone(receive))
    try:
        await _first_of(task, watcher, idle)
        if task.done():
            return task.result()
        raise ClientGone("The client closed the connection.")
    finally:
        await _stop(task, watcher)


async def _gone(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first_of(task: asyncio.Task[T], watcher: asyncio.Task[None], idle: Callable[[], Awaitable[float]] | None) -> None:
    while True:
        timeout_s = None if idle is None else await idle()
        done, _ = await asyncio.wait((task, watcher), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if done:
            return


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
