"""One request in a queue, and its place once it runs."""

import asyncio
from collections.abc import Callable

from gateway.call import Call
from gateway.priority import PRIORITIES

RANKS = {priority: rank for rank, priority in enumerate(PRIORITIES)}
"""0 is the best class."""

MIN_WEIGHT = 0.01
"""Smaller weights count as this one."""


class Ticket:
    """Permission to run. Whoever has it releases it, however the request ends; only the first release counts."""

    __slots__ = ("_release", "begun", "units")

    def __init__(self, release: Callable[["Ticket"], None], units: int, begun: float) -> None:
        self.units = units
        self.begun = begun
        self._release: Callable[[Ticket], None] | None = release

    def release(self) -> None:
        """Let the next request run."""
        if self._release is not None:
            release, self._release = self._release, None
            release(self)


class Waiter:
    """A request that is not running yet. `future` yields its ticket, or fails with the refusal."""

    __slots__ = ("future", "key", "rank", "since", "units", "weight")

    def __init__(self, call: Call, units: int, since: float, future: "asyncio.Future[Ticket]") -> None:
        self.key = call.identity.key_id
        self.rank = RANKS[call.priority]
        self.units = units
        self.weight = max(call.identity.weight, MIN_WEIGHT)
        self.since = since
        self.future = future
