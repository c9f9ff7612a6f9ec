"""Counts calls and failures of the last seconds in buckets of one second each; a call costs the same however many came."""


class Window:
    """Of `seconds` seconds. Times are monotonic seconds and never go back.

    Attributes:
        calls: how many ended within the window, as of the last `advance` or `add`.
        failures: how many of them failed.
    """

    __slots__ = ("_calls", "_failures", "_second", "calls", "failures")

    def __init__(self, seconds: int) -> None:
        self._calls = [0] * seconds
        self._failures = [0] * seconds
        self._second = 0
        self.calls = 0
        self.failures = 0

    def add(self, now: float, *, failed: bool) -> None:
        """Count one call."""
        if int(now) != self._second:
            self.advance(now)
        place = self._second % len(self._calls)
        self._calls[place] += 1
        self.calls += 1
        if failed:
            self._failures[place] += 1
            self.failures += 1

    def advance(self, now: float) -> None:
        """Forget what has left the window."""
        second = int(now)
        size = len(self._calls)
        for passed in range(min(second - self._second, size)):
            place = (second - passed) % size
            self.calls -= self._calls[place]
            self.failures -= self._failures[place]
            self._calls[place] = self._failures[place] = 0
        self._second = max(second, self._second)

    def clear(self) -> None:
        """Forget everything."""
        self._calls = [0] * len(self._calls)
        self._failures = [0] * len(self._failures)
        self.calls = self.failures = 0

    @property
    def error_rate(self) -> float:
        """The share that failed; 0 without calls."""
        return self.failures / self.calls if self.calls else 0.0
