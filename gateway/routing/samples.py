"""What one side of a comparison did: how many attempts failed, and how fast the others were."""

import math
from collections.abc import Callable, Sequence
from random import Random

MAX_KEPT = 1024
TAIL = 0.05
"""The slowest part of all answers, which p95 is the border of."""


class Reservoir:
    """A uniform sample of at most 1,024 of all values seen, whatever their number. Source: Vitter (1985), algorithm R."""

    __slots__ = ("_random", "_seen", "values")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._seen = 0
        self.values: list[float] = []

    def add(self, value: float) -> None:
        """Take one value, in place of a random one when there is no more room."""
        self._seen += 1
        if len(self.values) < MAX_KEPT:
            self.values.append(value)
            return
        place = int(self._random.random() * self._seen)
        if place < MAX_KEPT:
            self.values[place] = value


class Samples:
    """One side of a comparison. `on_end` is called after each attempt with whether it failed."""

    def __init__(self, random: Random, on_end: Callable[[bool], None]) -> None:
        self._random = random
        self._on_end = on_end
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.attempts = 0
        self.failures = 0
        self.ttft = Reservoir(self._random)
        self.itl = Reservoir(self._random)

    @property
    def error_rate(self) -> float:
        """The share that failed; 0 without attempts."""
        return self.failures / self.attempts if self.attempts else 0.0

    def first_token(self, ttft_s: float) -> None:
        """The first output came after so many seconds."""
        self.ttft.add(ttft_s)

    def succeeded(self, itl_s: float | None) -> None:
        """An attempt ended well."""
        self.attempts += 1
        if itl_s is not None:
            self.itl.add(itl_s)
        self._on_end(False)

    def failed(self) -> None:
        """An attempt failed."""
        self.attempts += 1
        self.failures += 1
        self._on_end(True)


def excess(rate: float, count: int, base_rate: float, base_count: int) -> float:
    """How many standard errors a share lies above another one, both of at least one sample.

    The two-proportion test on the arcsine scale, where the variance does not depend on the shares: the usual form takes two
    failures of twenty beside none of a thousand for certainty. Source: Cohen (1988), chapter 6.
    """
    distance = 2 * (math.asin(math.sqrt(rate)) - math.asin(math.sqrt(base_rate)))
    return distance / math.sqrt(1 / count + 1 / base_count)


def p95(values: Sequence[float]) -> float:
    """The value that 5 % of at least one value exceed."""
    return sorted(values)[math.ceil(len(values) * (1 - TAIL)) - 1]


def tail_excess(values: Sequence[float], base: Sequence[float], ratio: float) -> float:
    """How many standard errors the p95 of `values` lies above `ratio` times that of `base`.

    Asks how many values exceed that border: 5 % if the p95 is there. That needs no assumption about how times are spread, and
    how uncertain the border itself is has the same form as the uncertainty of a share of `base`.
    """
    border = ratio * p95(base)
    share = sum(value > border for value in values) / len(values)
    return excess(share, len(values), TAIL, len(base))
