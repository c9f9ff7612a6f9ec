"""Which priority class is next: the best one that waits, but a little is kept for the others, so that none starves.

While a class waits, it earns a share of the units that better classes are given: 10 % for standard, 5 % for batch. As soon as
it has earned what its first request needs, that request is next whatever else waits. So beside any load of better classes
standard gets one unit in eleven and batch one in twenty-one, at least, and with nothing better waiting a class has all.
"""

from collections.abc import Sequence

from gateway.admission.fair_line import FairLine

SHARES = (0.0, 0.1, 0.05)
"""What a waiting class earns of the units given to better ones, by rank."""

# Earnings are sums of tenths and twentieths, which binary fractions only come close to.
_ROUNDING = 1e-9


class ClassOrder:
    """The choice between the lines of all classes, best first."""

    def __init__(self, lines: Sequence[FairLine]) -> None:
        self._lines = lines
        self._earned = [0.0] * len(lines)

    def next_rank(self) -> int | None:
        """The class whose first request is next; None when nobody waits."""
        best: int | None = None
        for rank, line in enumerate(self._lines):
            if not line:
                self._earned[rank] = 0.0
            elif best is None:
                best = rank
            elif self._earned[rank] + _ROUNDING >= line.first().units:
                return rank
        return best

    def granted(self, rank: int, units: int) -> None:
        """Note that a request of a class runs now: what it had earned is used up, and worse classes that wait earn."""
        self._earned[rank] = max(0.0, self._earned[rank] - units)
        for worse in range(rank + 1, len(self._lines)):
            if self._lines[worse]:
                self._earned[worse] += SHARES[worse] * units
