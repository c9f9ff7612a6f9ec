"""Our own counters against those of prometheus_client."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from gateway.telemetry.figures import Amounts, Times, add, counter, histogram

BOUNDS = (0.001, 0.25, 1.0, 1800.0)


class One(Collector):
    def __init__(self, metric) -> None:
        self.metric = metric

    def collect(self):
        yield self.metric


def exposed(metric) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(One(metric))
    return generate_latest(registry).decode()


def lines(text: str) -> list[str]:
    """Without the creation times, which we do not export."""
    return [line for line in text.splitlines() if "_created" not in line]


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.001, 0.0011, 0.25, 0.3, 1.0, 5.0, 1e5]), st.integers(1, 3))))
def test_histogram_is_exposed_like_the_usual_one(observations):
    ours, registry = Times(BOUNDS), CollectorRegistry()
    usual = Histogram("x_seconds", "Text.", ("model",), buckets=BOUNDS, registry=registry).labels("m")
    for seconds, times in observations:
        ours.observe(seconds, times)
        for _ in range(times):
            usual.observe(seconds)
    expected, got = (
        lines(generate_latest(registry).decode()),
        lines(exposed(histogram("x_seconds", "Text.", ("model",), [(("m",), ours)]))),
    )
    assert [line for line in got if "_sum" not in line] == [line for line in expected if "_sum" not in line]
    assert abs(ours.sum - sum(seconds * times for seconds, times in observations)) < 1e-6


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9))))
def test_counter_is_exposed_like_the_usual_one(increments):
    amounts: Amounts = {}
    registry = CollectorRegistry()
    usual = Counter("x", "Text.", ("model",), registry=registry)
    for model, amount in increments:
        add(amounts, (model,), amount)
        usual.labels(model).inc(amount)
    assert lines(exposed(counter("x", "Text.", ("model",), amounts))) == lines(generate_latest(registry).decode())


@given(st.lists(st.floats(0, 1e4)), st.lists(st.floats(0, 1e4)))
def test_merged_histograms_count_what_both_counted(left, right):
    first, second, both = Times(BOUNDS), Times(BOUNDS), Times(BOUNDS)
    for times, values in ((first, left), (second, right), (both, left + right)):
        for value in values:
            times.observe(value)
    first.merge(second)
    assert first.counts == both.counts
