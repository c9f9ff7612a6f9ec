"""Metrics of several processes as those of one: how they travel, and how they are added up.

Counters and histograms are added. So are most gauges, since each process has its own part of what they measure (requests in
flight, slots, memory); of those that describe the same thing in every process the one is taken that an operator must see.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import add

import msgspec
from msgspec import Struct
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

Rule = Callable[[float, float], float]

_LIVING_ON = ("counter", "histogram")
_RULES: dict[str, Rule] = {
    "baton_build_info": max,
    "baton_engine_state": max,
    "baton_breaker_state": max,
    "baton_canary_percent": max,
    "baton_deployment_healthy": min,
    "baton_store_available": min,
    "process_start_time_seconds": min,
    "process_virtual_memory_max_bytes": max,
    "vllm:kv_cache_usage_perc": max,
}


class _Family(Struct, frozen=True, array_like=True):
    name: str
    text: str
    kind: str
    unit: str
    samples: list[tuple[str, dict[str, str], float]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Family]).decode


def pack(metrics: Iterable[Metric]) -> bytes:
    """Encode metrics, without exemplars and times."""
    return _encode(
        [
            _Family(one.name, one.documentation, one.type, one.unit, [(s.name, s.labels, float(s.value)) for s in one.samples])
            for one in metrics
        ]
    )


def unpack(data: bytes) -> list[Metric]:
    """Decode what `pack` gave. Raises msgspec.MsgspecError when it is something else."""
    metrics = []
    for family in _decode(data):
        metric = Metric(family.name, family.text, family.kind, family.unit)
        for name, labels, value in family.samples:
            metric.add_sample(name, labels, value)
        metrics.append(metric)
    return metrics


def living_on(metrics: Iterable[Metric]) -> list[Metric]:
    """What still counts when the process has ended: sums over time, but nothing that describes a moment."""
    return [metric for metric in metrics if metric.type in _LIVING_ON]


def merge(parts: Sequence[Iterable[Metric]]) -> list[Metric]:
    """Make one list of metrics of several, in the order in which they are first met."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for part in parts:
        for metric in part:
            families.setdefault(metric.name, metric)
            known = values.setdefault(metric.name, {})
            for sample in metric.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                value = sample.value
                known[key] = _rule(metric.name, sample.name)(known[key], value) if key in known else value
    return [_build(families[name], samples) for name, samples in values.items()]


def render(metrics: Sequence[Metric], accept: str) -> tuple[bytes, str]:
    """Render metrics in the format that a scraper's Accept header asks for. Returns the body and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(metrics)), content_type


class _Collected:
    """What an encoder takes for a registry."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


def _rule(family: str, sample: str) -> Rule:
    return min if sample.endswith("_created") else _RULES.get(family, add)


def _build(like: Metric, samples: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> Metric:
    metric = Metric(like.name, like.documentation, like.type, like.unit)
    for (name, labels), value in samples.items():
        metric.add_sample(name, dict(labels), value)
    return metric
