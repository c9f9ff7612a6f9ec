"""The last five minutes, second by second, for a dashboard: kept in memory, in a ring whose size is fixed.

Times are counted by the logarithm of their length, eight steps to an octave, so a percentile is off by at most 5 %.
Writing costs the same however much is kept; a second's percentiles are computed once, when they are first asked for.
"""

import math
from collections.abc import Callable
from time import monotonic, time

SECONDS = 300

_STEPS_PER_OCTAVE = 8
_SHORTEST_S = 1e-4
_LAST_STEP = 192
"""Of 1.7e3 seconds and all above."""


class Steps:
    """A sparse histogram over steps of about 9 %."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a time."""
        step = 0
        if seconds > _SHORTEST_S:
            step = min(int(math.log2(seconds / _SHORTEST_S) * _STEPS_PER_OCTAVE) + 1, _LAST_STEP)
        self.counts[step] = self.counts.get(step, 0) + times

    def quantiles(self, *shares: float) -> list[float | None]:
        """The times, in seconds, that these shares (0 to 1) of all stay within; None when there are none."""
        total = sum(self.counts.values())
        return [self._quantile(share * total) if total else None for share in shares]

    def _quantile(self, rank: float) -> float:
        seen = 0
        for step in sorted(self.counts):
            seen += self.counts[step]
            if seen >= rank:
                return _SHORTEST_S * 2 ** ((step - 0.5) / _STEPS_PER_OCTAVE)
        raise AssertionError("a rank is at most the sum of the counts")


class Second:
    """What happened within one second."""

    __slots__ = ("errors", "inter_token", "percentiles", "queue_depth", "requests", "tokens", "ttft")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.tokens = 0
        self.queue_depth = 0
        self.ttft = Steps()
        self.inter_token = Steps()
        self.percentiles: tuple[float | None, ...] | None = None

    def compute(self) -> tuple[float | None, ...]:
        """Time to first token and inter-token latency, p50 and p95 of each; remembered, so only for a second that is over."""
        if self.percentiles is None:
            self.percentiles = (*self.ttft.quantiles(0.5, 0.95), *self.inter_token.quantiles(0.5, 0.95))
        return self.percentiles


class Live:
    """The ring. Times that are handed in come from `clock`.

    Args:
        clock: monotonic seconds.
        wall: Unix seconds.

    Attributes:
        queue_depth: says how many requests wait, in all queues; asked once a second at most.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, wall: Callable[[], float] = time) -> None:
        self.queue_depth: Callable[[], int] = int
        self._clock = clock
        self._wall = wall
        self._ring = [Second() for _ in range(SECONDS + 1)]
        self._number = self._first = int(clock())
        self._now = self._ring[self._number % len(self._ring)]

    def first_token(self, now: float, seconds: float, count: int) -> None:
        """The first `count` tokens of a request came, `seconds` after it."""
        if now >= self._number + 1:
            self._advance(now)
        self._now.tokens += count
        self._now.ttft.add(seconds)

    def later_tokens(self, now: float, gap_s: float, count: int) -> None:
        """Another `count` tokens came, `gap_s` apart."""
        if now >= self._number + 1:
            self._advance(now)
        self._now.tokens += count
        self._now.inter_token.add(gap_s, count)

    def more_tokens(self, count: int) -> None:
        """The request that ends now had `count` tokens more than were seen to come."""
        self._now.tokens += count

    def ended(self, now: float, *, failed: bool) -> None:
        """A request ended, by an error or not."""
        if now >= self._number + 1:
            self._advance(now)
        self._now.requests += 1
        self._now.errors += failed

    def snapshot(self) -> dict[str, object]:
        """The seconds that are over, oldest first, 300 at most: for each figure a list with one entry per second.

        `until` is when the last one ended (Unix seconds). Requests and errors count when they end. Percentiles are in seconds,
        None without events.
        """
        now = self._clock()
        if now >= self._number + 1:
            self._advance(now)
        size = len(self._ring)
        seconds = [self._ring[n % size] for n in range(max(self._first, self._number - SECONDS), self._number)]
        percentiles = [second.compute() for second in seconds]
        return {
            "until": self._wall() - (now - self._number),
            "step_s": 1,
            "requests": [second.requests for second in seconds],
            "errors": [second.errors for second in seconds],
            "tokens": [second.tokens for second in seconds],
            "queue_depth": [second.queue_depth for second in seconds],
            "ttft_p50_s": [each[0] for each in percentiles],
            "ttft_p95_s": [each[1] for each in percentiles],
            "itl_p50_s": [each[2] for each in percentiles],
            "itl_p95_s": [each[3] for each in percentiles],
        }

    def _advance(self, now: float) -> None:
        """Go to the second of `now`. What waits at this moment is taken for the seconds since the last event."""
        size = len(self._ring)
        number, depth = int(now), self.queue_depth()
        self._now.queue_depth = depth
        for passed in range(max(self._number + 1, number - SECONDS), number + 1):
            fresh = self._ring[passed % size] = Second()
            fresh.queue_depth = depth
        self._number = number
        self._now = self._ring[number % size]
