"""The admission queue of one public model: a request runs at once when there is room, else it waits its turn or is refused.

Order: the class first (`gateway.admission.class_order`), inside a class fair between keys (`gateway.admission.fair_line`). The
next request is never overtaken because it is large: room is kept free until it fits.

When all places to wait are taken, the newcomer takes the place of the newest request of the key that waits for most by its
weight, in the worst class that waits, if that class is worse than the newcomer's, or the same and that key would still wait for
more than the newcomer's own. Otherwise the newcomer is refused. So a key that floods the queue pushes out its own requests.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Literal

from msgspec import Struct

from backends.errors import Overloaded
from gateway.admission.class_order import ClassOrder
from gateway.admission.config import AdmissionConfig
from gateway.admission.fair_line import FairLine
from gateway.admission.waiter import RANKS, Ticket, Waiter
from gateway.call import Call
from gateway.priority import PRIORITIES, Priority

Refusal = Literal["full", "displaced", "timeout", "closed"]

MIN_RETRY_AFTER_S, MAX_RETRY_AFTER_S = 1.0, 60.0
_SMOOTHING = 0.1
_CLOSED = "The server is shutting down."


class QueueSnapshot(Struct, frozen=True, kw_only=True):
    """A queue at one moment. `running` and `capacity` are in units (capacity 0: unlimited), `waiting` in requests.

    `admitted` and `refused` count requests since the start of the process.
    """

    running: int
    capacity: int
    waiting: dict[Priority, int]
    admitted: int
    refused: dict[Refusal, int]


class Queue:
    """One queue. Used from one event loop.

    Args:
        clock: monotonic seconds, the same as in `Call.deadline`.
    """

    def __init__(self, config: AdmissionConfig, clock: Callable[[], float] = monotonic) -> None:
        self._config, self._clock = config, clock
        self._capacity = config.max_running
        self._lines = tuple(FairLine() for _ in PRIORITIES)
        self._order = ClassOrder(self._lines)
        self._running = 0
        self._waiting = 0
        self._admitted = 0
        self._refused: Counter[Refusal] = Counter()
        self._hold_s = 0.0
        self._is_closed = False

    async def admit(self, call: Call) -> Ticket:
        """Wait until the call may run. `call.trail.waited_s` grows by the wait, however that ends.

        A call for more units than the queue has counts as one for all of them.

        Raises:
            Overloaded: no place to wait is left, or a better request took this one's, or the queue is closed; with the code
                `queue_timeout` the call has waited as long as it may.
        """
        now = self._clock()
        units = min(call.units, self._capacity) if self._capacity else call.units
        if self._is_closed:
            raise self._refuse("closed", _CLOSED)
        if call.deadline is not None and now >= call.deadline:
            raise self._refuse("timeout", _waited(0.0), self._expected_wait_s(RANKS[call.priority], units))
        if not self._waiting and self._has_room(units):
            return self._run(units, now)
        waiter = Waiter(call, units, now, asyncio.get_running_loop().create_future())
        self._line_up(waiter)
        try:
            return await self._wait(waiter, call.deadline)
        finally:
            call.trail.waited_s += self._clock() - now

    def snapshot(self) -> QueueSnapshot:
        """Say how it is."""
        return QueueSnapshot(
            running=self._running,
            capacity=self._capacity,
            waiting={priority: len(line) for priority, line in zip(PRIORITIES, self._lines, strict=True)},
            admitted=self._admitted,
            refused=dict(self._refused),
        )

    def close(self) -> None:
        """Refuse all that wait and all that come; what runs goes on. May be called twice."""
        self._is_closed = True
        for line in self._lines:
            while line:
                self._turn_away(line.first(), "closed", _CLOSED)

    async def _wait(self, waiter: Waiter, deadline: float | None) -> Ticket:
        """Wait for the ticket; whoever is cancelled here leaves the line, or gives back the ticket that it just got."""
        wait_s = self._config.max_wait_s
        if deadline is not None:
            wait_s = min(wait_s, deadline - waiter.since)
        timer = asyncio.get_running_loop().call_later(wait_s, self._expire, waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                self._leave(waiter)
                self._dispatch()
            elif waiter.future.exception() is None:
                waiter.future.result().release()
            raise
        finally:
            timer.cancel()

    def _line_up(self, waiter: Waiter) -> None:
        self._lines[waiter.rank].push(waiter)
        self._waiting += 1
        self._dispatch()
        if self._waiting > self._config.max_waiting:
            self._make_place(waiter)

    def _make_place(self, newcomer: Waiter) -> None:
        """Refuse one of those who wait, the newcomer among them: see the head of this file."""
        rank = max(rank for rank, line in enumerate(self._lines) if line)
        line = self._lines[rank]
        victim, backlog = line.newest_of_longest()
        if rank == newcomer.rank and backlog <= line.backlog(newcomer):
            victim = newcomer
        message = f"The queue of this model is full: {self._config.max_waiting} requests may wait."
        if victim is newcomer:
            self._turn_away(newcomer, "full", message)
        else:
            self._turn_away(victim, "displaced", f"{message} Another one goes before this one.")

    def _dispatch(self) -> None:
        """Let those run that are next, as long as they fit."""
        while not self._is_closed and (rank := self._order.next_rank()) is not None:
            waiter = self._lines[rank].first()
            if waiter.future.done():
                self._leave(waiter)  # cancelled, and its task has not run since
                continue
            if not self._has_room(waiter.units):
                return
            self._order.granted(rank, waiter.units)
            self._lines[rank].pop_first()
            self._waiting -= 1
            waiter.future.set_result(self._run(waiter.units, self._clock()))

    def _has_room(self, units: int) -> bool:
        return not self._capacity or self._running + units <= self._capacity

    def _run(self, units: int, now: float) -> Ticket:
        self._running += units
        self._admitted += 1
        return Ticket(self._finish, units, now)

    def _finish(self, ticket: Ticket) -> None:
        self._running -= ticket.units
        held_s = self._clock() - ticket.begun
        self._hold_s += (held_s - self._hold_s) * (_SMOOTHING if self._hold_s else 1.0)
        if self._waiting:
            self._dispatch()

    def _leave(self, waiter: Waiter) -> None:
        if self._lines[waiter.rank].remove(waiter):
            self._waiting -= 1

    def _expire(self, waiter: Waiter) -> None:
        if not waiter.future.done():
            self._turn_away(waiter, "timeout", _waited(self._clock() - waiter.since))

    def _turn_away(self, waiter: Waiter, refusal: Refusal, message: str) -> None:
        self._leave(waiter)
        error = self._refuse(refusal, message, self._expected_wait_s(waiter.rank, waiter.units))
        if not waiter.future.done():
            waiter.future.set_exception(error)
        self._dispatch()

    def _refuse(self, refusal: Refusal, message: str, retry_after_s: float = MIN_RETRY_AFTER_S) -> Overloaded:
        self._refused[refusal] += 1
        return Overloaded(message, code="queue_timeout" if refusal == "timeout" else None, retry_after_s=retry_after_s)

    def _expected_wait_s(self, rank: int, units: int) -> float:
        """When a request of this class that came now would run: by Little's law, from how long units were held lately."""
        ahead = units + sum(line.units for line in self._lines[: rank + 1])
        wait_s = ahead * self._hold_s / (self._capacity or math.inf)
        return min(max(wait_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)


def _waited(seconds: float) -> str:
    return f"The request waited {seconds:.1f} s in the queue of this model, which is as long as it may."
