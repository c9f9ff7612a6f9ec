"""How many retries may be made, and how long to wait before one at the same deployment."""

from random import Random

from backends.errors import BackendError, Overloaded
from gateway.routing.config import RetryConfig

LONG_WAIT_S = 0.5
"""An error that names a longer time than this to come back is passed on: the client waits better than a queue of retries."""

_BURST = 100


class RetryBudget:
    """A token bucket that each request fills by `ratio` and each retry or hedge empties by one. Starts full.

    It holds what a hundred requests earn (with a `ratio` above 0 at least one retry), so the retries of any stretch of traffic
    are a bounded share of its requests. Source: Finagle's `RetryBudget`.
    """

    __slots__ = ("_capacity", "_ratio", "tokens")

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._capacity = self.tokens = max(1.0, ratio * _BURST) if ratio else 0.0

    def earn(self) -> None:
        """A request has begun."""
        self.tokens = min(self._capacity, self.tokens + self._ratio)

    def spend(self) -> bool:
        """Take what one retry costs; False, and nothing taken, when there is too little."""
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


def delay_s(error: BackendError, retry: int, config: RetryConfig, random: Random) -> float | None:
    """Seconds to wait before the same deployment is tried again; None when it should not be.

    Exponential with full jitter. Source: Brooker, "Exponential backoff and jitter" (AWS, 2015).

    Args:
        retry: 1 for the first one.
    """
    asked_s = error.retry_after_s
    if (asked_s is None and isinstance(error, Overloaded)) or (asked_s is not None and asked_s > LONG_WAIT_S):
        return None
    longest = min(config.max_delay_s, config.base_delay_s * 2.0 ** (retry - 1))
    return max(asked_s or 0.0, random.random() * longest)
