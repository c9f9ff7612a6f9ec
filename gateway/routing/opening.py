"""One attempt, from its beginning to its first output: whatever happens, its deployment learns how it ended."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from backends.errors import BackendError
from backends.trace_context import trace_headers
from gateway.call import Call
from gateway.routing.deployment import Attempt, Deployment
from gateway.routing.seat import Seat


class Closable(Protocol):
    """An answer that has begun."""

    async def aclose(self) -> None:
        """Give up the rest of it."""


T = TypeVar("T", bound=Closable)

Open = Callable[[Deployment], Awaitable[T]]
"""Asks a deployment and returns once the first output is there. When it raises, or is cancelled, it leaves nothing open."""


async def open_at(seat: Seat, call: Call, open: Open[T]) -> tuple[T, Attempt]:
    """Begin an attempt and wait for its first output. What it raises has ended the attempt."""
    attempt = seat.begin(call)
    return await finish_opening(attempt, open), attempt


async def finish_opening(attempt: Attempt, open: Open[T]) -> T:
    """Wait for the first output of an attempt that has begun."""
    if attempt.span is not None:
        # An attempt elsewhere sets its own, and a hedged one has a task and so a context of its own.
        trace_headers.set(attempt.span.headers)
    try:
        output = await open(attempt.deployment)
    except BackendError as error:
        attempt.failed(error)
        raise
    except BaseException:
        attempt.cancelled()
        raise
    attempt.first_token()
    return output
