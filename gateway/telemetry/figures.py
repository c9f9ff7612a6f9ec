"""Figures that cost a fraction of a microsecond to write: plain numbers, which a collector reads when somebody scrapes.

prometheus_client's own counters and histograms take a lock and several calls for each write, which adds up to a tenth of what a
whole request may cost. Here only the event loop writes and reads, so nothing needs a lock.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

PREFIX = "baton_"

Key = tuple[str, ...]
Amounts = dict[Key, float]


def add(amounts: Amounts, key: Key, amount: float = 1.0) -> None:
    """Let the amount under `key` grow."""
    amounts[key] = amounts.get(key, 0.0) + amount


class Times:
    """A histogram of seconds. `counts[i]` are those within `bounds[i]` and above the bound before; the last have no bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count `seconds`, as often as given."""
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.sum += seconds * times

    def merge(self, other: "Times") -> None:
        """Add what another one with the same bounds counted."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum


def counter(name: str, text: str, labels: Sequence[str], amounts: Mapping[Key, float]) -> Metric:
    """Build the family of a counter for exposition; `name` is without `_total`."""
    family = CounterMetricFamily(name, text, labels=labels)
    for key, amount in amounts.items():
        family.add_metric(key, amount)
    return family


def gauge(name: str, text: str, labels: Sequence[str], values: Mapping[Key, float]) -> Metric:
    """Build the family of a gauge for exposition."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def histogram(name: str, text: str, labels: Sequence[str], times: Iterable[tuple[Key, Times]]) -> Metric:
    """Build the family of a histogram for exposition."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for key, each in times:
        total, buckets = 0, []
        for bound, count in zip((*each.bounds, float("inf")), each.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        family.add_metric(key, buckets, each.sum)
    return family
