"""The figures that routers and autoscalers read from vLLM, under vLLM's names.

Gateway API inference extension, llm-d, production-stack and many autoscalers scrape exactly these names, so a Baton can stand
where they expect a vLLM. Values are those of our own families, summed over endpoints; nothing is counted twice.
"""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backends.types import Health
from gateway.telemetry.engine import EngineCollector
from gateway.telemetry.families import Series
from gateway.telemetry.figures import Amounts, Key, Times, add, counter, histogram

_LABEL = ("model_name",)


class VllmAliases(Collector):
    """Re-exports our families as `vllm:*`."""

    def __init__(self, series: Mapping[tuple[str, str], Series], engine: EngineCollector) -> None:
        self._series = series
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield the aliases."""
        yield from self._of_engines()
        prompt: Amounts = {}
        generated: Amounts = {}
        finishes: Amounts = {}
        for one in self._series.values():
            model = one.labels[1]
            add(prompt, (model,), one.prompt_tokens)
            add(generated, (model,), one.generation_tokens)
            for reason, count in one.finishes.items():
                add(finishes, (model, reason), count)
        yield counter("vllm:prompt_tokens", "Prompt tokens of ended requests.", _LABEL, prompt)
        yield counter("vllm:generation_tokens", "Generated tokens.", _LABEL, generated)
        yield counter("vllm:request_success", "Successful requests.", (*_LABEL, "finished_reason"), finishes)
        yield self._histogram("vllm:time_to_first_token_seconds", "To the first token.", "first_token")
        yield self._histogram("vllm:inter_token_latency_seconds", "Between tokens.", "inter_token")
        yield self._histogram("vllm:e2e_request_latency_seconds", "To the end of the request.", "duration")

    def _of_engines(self) -> Iterator[Metric]:
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

    def _histogram(self, name: str, text: str, field: str) -> Metric:
        sums: dict[Key, Times] = {}
        for one in self._series.values():
            times: Times = getattr(one, field)
            sums.setdefault((one.labels[1],), Times(times.bounds)).merge(times)
        return histogram(name, text, _LABEL, sums.items())


def _kv_share(health: Health) -> float | None:
    """Find the used share of the KV cache among the figures of an engine, if it reports one."""
    total = health.gauges.get("kv_cells_total", health.gauges.get("kv_cells", 0.0))
    if total and "kv_cells_used" in health.gauges:
        return min(1.0, health.gauges["kv_cells_used"] / total)
    return health.gauges.get("kv_cache_usage")
