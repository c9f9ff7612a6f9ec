"""Two attempts at once, when the first one takes long: the first output wins, the other attempt is given up.

Source: Dean and Barroso, "The tail at scale" (2013), hedged requests.
"""

import asyncio
from typing import Generic

from backends.errors import BackendError
from gateway.call import Call
from gateway.routing.deployment import Attempt
from gateway.routing.opening import Open, T, finish_opening
from gateway.routing.route import Route
from gateway.routing.router import Router
from gateway.routing.seat import Seat


class Racer(Generic[T]):
    """An attempt that opens in a task of its own."""

    def __init__(self, seat: Seat, call: Call, open: Open[T]) -> None:
        self.seat = seat
        self.attempt = seat.begin(call)
        self.task: asyncio.Task[T] = asyncio.get_running_loop().create_task(self._open(open))

    async def give_up(self) -> None:
        """End it, and close what it may have opened meanwhile."""
        self.task.cancel()
        await asyncio.wait({self.task})
        # A task that is cancelled before its first step has not ended the attempt.
        self.attempt.cancelled()
        if not self.task.cancelled() and self.task.exception() is None:
            await self.task.result().aclose()

    async def _open(self, open: Open[T]) -> T:
        return await finish_opening(self.attempt, open)


async def open_hedged(
    router: Router, route: Route, seat: Seat, call: Call, open: Open[T], tried: list[Seat]
) -> tuple[T, Attempt]:
    """Open at `seat`, and also elsewhere once `route.hedge_after_s` has passed, if the retry budget allows.

    Args:
        tried: the seats used so far, `seat` included; the second one is added.

    Raises:
        BackendError: of the attempt that failed last, or the first one that another try cannot help.
    """
    racers = [Racer(seat, call, open)]
    try:
        done, _ = await asyncio.wait({racers[0].task}, timeout=route.hedge_after_s)
        second = None if done else route.choose(call, tried)
        if second is not None and router.budget.spend():
            tried.append(second)
            call.trail.hedged = True
            racers.append(Racer(second, call, open))
        winner = await _first_to_deliver(racers)
    except BaseException:
        for racer in racers:
            router.finish_later(racer.give_up())
        raise
    for racer in racers:
        if racer is not winner:
            router.finish_later(racer.give_up())
    call.trail.deployment = winner.seat.deployment.name
    call.trail.canary = winner.seat.is_canary
    return winner.task.result(), winner.attempt


async def _first_to_deliver(racers: list[Racer[T]]) -> Racer[T]:
    """Wait for the first output; an error counts only when it is the last word, or would be the same everywhere."""
    running = {racer.task: racer for racer in racers}
    while True:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        failures = []
        for task in done:
            racer = running.pop(task)
            if task.cancelled():
                raise asyncio.CancelledError
            error = task.exception()
            if error is None:
                return racer
            failures.append(error)
        for error in failures:
            if not running or not (isinstance(error, BackendError) and error.retryable):
                raise error
