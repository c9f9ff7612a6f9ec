"""The line of one priority class: fair between keys by weight, first come first served inside one. Knows no clock and no task.

Start-time fair queueing: the first request of every key bears a start tag in virtual time, the smallest tag is next, and a
request moves its key's next tag back by its units over the key's weight. A key that was away starts at the present, so nobody
saves up a claim by staying away.

Source: Goyal, Vin and Cheng, "Start-time Fair Queueing" (1997), section 2.
"""

from bisect import bisect_left, insort

from gateway.admission.waiter import Waiter

_MAX_IDLE_KEYS = 1024


class _Flow:
    """The requests of one key, oldest first, and the start tag of the first. `order` breaks ties between tags."""

    __slots__ = ("order", "start", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}
        self.start = 0.0
        self.order = 0


class FairLine:
    """Who is next in one class."""

    def __init__(self) -> None:
        self.units = 0
        self._flows: dict[str, _Flow] = {}
        self._heads: list[tuple[float, int, Waiter]] = []
        self._now = 0.0
        self._count = 0
        self._orders = 0

    def __len__(self) -> int:
        """The number of requests in the line."""
        return self._count

    def push(self, waiter: Waiter) -> None:
        """Add a request at the end of its key's line."""
        flow = self._flows.get(waiter.key)
        if flow is None:
            self._drop_idle_flows()
            flow = self._flows[waiter.key] = _Flow()
        flow.waiters[waiter] = None
        self._count += 1
        self.units += waiter.units
        if len(flow.waiters) == 1:
            flow.start = max(flow.start, self._now)
            self._line_up(flow, waiter)

    def first(self) -> Waiter:
        """Return the next request; the line must not be empty."""
        return self._heads[0][2]

    def pop_first(self) -> Waiter:
        """Remove and return the next request, which is going to run: virtual time and its key's claim move on."""
        start, _, waiter = self._heads[0]
        self._now = start
        self._take_out(waiter, start + waiter.units / waiter.weight)
        return waiter

    def remove(self, waiter: Waiter) -> bool:
        """Remove a request that will not run, and say whether it was in the line; nobody is charged for it."""
        flow = self._flows.get(waiter.key)
        if flow is None or waiter not in flow.waiters:
            return False
        self._take_out(waiter, flow.start)
        return True

    def backlog(self, waiter: Waiter) -> float:
        """How many requests the key of this one, which is in the line, has there, over its weight."""
        return _backlog(self._flows[waiter.key])

    def newest_of_longest(self) -> tuple[Waiter, float]:
        """Return the newest request of the key with the largest backlog (the last in the line of several), and that backlog."""
        flow = max((self._flows[head.key] for _, _, head in reversed(self._heads)), key=_backlog)
        return next(reversed(flow.waiters)), _backlog(flow)

    def _take_out(self, waiter: Waiter, next_start: float) -> None:
        flow = self._flows[waiter.key]
        is_head = next(iter(flow.waiters)) is waiter
        del flow.waiters[waiter]
        self._count -= 1
        self.units -= waiter.units
        if is_head:
            del self._heads[bisect_left(self._heads, (flow.start, flow.order))]
            flow.start = next_start
            if flow.waiters:
                self._line_up(flow, next(iter(flow.waiters)))
        if not self._count:
            # Nobody waits, so nobody has a claim on anybody.
            self._flows.clear()
            self._now = 0.0

    def _line_up(self, flow: _Flow, head: Waiter) -> None:
        self._orders += 1
        flow.order = self._orders
        insort(self._heads, (flow.start, flow.order, head))

    def _drop_idle_flows(self) -> None:
        """Forget the claims of keys that have nothing in the line, once there are many."""
        if len(self._flows) >= _MAX_IDLE_KEYS + self._count:
            self._flows = {key: flow for key, flow in self._flows.items() if flow.waiters}


def _backlog(flow: _Flow) -> float:
    return len(flow.waiters) / next(iter(flow.waiters)).weight
