"""The figures that routers and autoscalers read from vLLM, under vLLM's names.

Gateway API inference extension, llm-d, production-stack and many autoscalers scrape exactly these names, so a Baton can stand
where they expect a vLLM. Values are those of our own families, summed over endpoints; nothing is counted twice.
"""

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backends.types import Health
from gateway.telemetry.engine import EngineCollector
from gateway.telemetry.families import Families

_LABEL = ("model_name",)


class VllmAliases(Collector):
    """Re-exports our families as `vllm:*`."""

    def __init__(self, families: Families, engine: EngineCollector) -> None:
        self._families = families
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield the aliases."""
        running = GaugeMetricFamily("vllm:num_requests_running", "Requests that hold a slot.", labels=_LABEL)
        waiting = GaugeMetricFamily("vllm:num_requests_waiting", "Requests that wait for a slot.", labels=_LABEL)
        usage = GaugeMetricFamily("vllm:kv_cache_usage_perc", "Used share of the KV cache, 0 to 1.", labels=_LABEL)
        queries = CounterMetricFamily(
            "vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", labels=_LABEL
        )
        hits = CounterMetricFamily("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", labels=_LABEL)
        for model, health in self._engine.healths.items():
            running.add_metric((model,), health.running)
            waiting.add_metric((model,), health.waiting)
            share = _kv_share(health)
            if share is not None:
                usage.add_metric((model,), share)
            if "prefix_cache_hit_tokens_total" in health.counters:
                hits.add_metric((model,), health.counters["prefix_cache_hit_tokens_total"])
                queries.add_metric((model,), health.counters.get("prompt_tokens_total", 0.0))
        yield from (running, waiting, usage, queries, hits)
        families = self._families
        yield _counter("vllm:prompt_tokens", families.prompt_tokens)
        yield _counter("vllm:generation_tokens", families.generation_tokens)
        yield _counter("vllm:request_success", families.finishes, "reason", "finished_reason")
        yield _histogram("vllm:time_to_first_token_seconds", families.first_token)
        yield _histogram("vllm:inter_token_latency_seconds", families.inter_token)
        yield _histogram("vllm:e2e_request_latency_seconds", families.duration)


def _kv_share(health: Health) -> float | None:
    """Find the used share of the KV cache among the figures of an engine, if it reports one."""
    total = health.gauges.get("kv_cells_total", health.gauges.get("kv_cells", 0.0))
    if total and "kv_cells_used" in health.gauges:
        return min(1.0, health.gauges["kv_cells_used"] / total)
    return health.gauges.get("kv_cache_usage")


def _counter(name: str, source: Counter, label: str | None = None, renamed: str | None = None) -> Metric:
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for metric in source.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                labels = [sample.labels[name] for name in ("model", label) if name]
                sums[tuple(labels)] += sample.value
    family = CounterMetricFamily(name, metric.documentation, labels=(*_LABEL, renamed) if renamed else _LABEL)
    for key, value in sums.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, source: Histogram) -> Metric:
    (ours,) = source.collect()
    family = Metric(name, ours.documentation, "histogram")
    sums: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for sample in ours.samples:
        suffix = sample.name.removeprefix(ours.name)
        if suffix != "_created":
            sums[sample.labels["model"], suffix, sample.labels.get("le", "")] += sample.value
    for (model, suffix, le), value in sums.items():
        family.add_sample(name + suffix, {"model_name": model} | ({"le": le} if le else {}), value)
    return family
