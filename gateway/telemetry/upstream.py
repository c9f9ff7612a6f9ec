"""What the attempts at one deployment came to. A request makes several attempts when it is retried, hedged or falls back."""

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from backends.errors import BackendError, Failed, ModelNotFound, Overloaded, Rejected, TimedOut, Unavailable
from gateway.telemetry.families import FIRST_TOKEN_BUCKETS_S
from gateway.telemetry.figures import PREFIX, Amounts, Times, counter, histogram

Outcome = Literal["success", "rejected", "overloaded", "unavailable", "timeout", "failed", "cancelled"]

# Most special class first.
_OUTCOMES: tuple[tuple[type[BackendError], Outcome], ...] = (
    (Rejected, "rejected"),
    (ModelNotFound, "rejected"),
    (Overloaded, "overloaded"),
    (Unavailable, "unavailable"),
    (TimedOut, "timeout"),
    (Failed, "failed"),
)
_LABEL = ("deployment",)


class UpstreamSeries:
    """Of one deployment. `outcomes` count attempts that have ended; `first_token` runs from the attempt to its first output."""

    __slots__ = ("first_token", "outcomes")

    def __init__(self) -> None:
        self.outcomes: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        self.first_token = Times(FIRST_TOKEN_BUCKETS_S)


class UpstreamFamilies(Collector):
    """Exports them by deployment."""

    def __init__(self, series: Mapping[str, UpstreamSeries]) -> None:
        self._series = series

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        outcomes: Amounts = {
            (name, outcome): count for name, one in self._series.items() for outcome, count in one.outcomes.items()
        }
        times = [((name,), one.first_token) for name, one in self._series.items()]
        text = "From the attempt at a deployment to its first output."
        yield counter(PREFIX + "upstream_requests", "Attempts that have ended.", ("deployment", "outcome"), outcomes)
        yield histogram(PREFIX + "upstream_time_to_first_token_seconds", text, _LABEL, times)


def outcome_of(error: BackendError) -> Outcome:
    """Name how an attempt ended that raised `error`."""
    return next((outcome for cls, outcome in _OUTCOMES if isinstance(error, cls)), "failed")
