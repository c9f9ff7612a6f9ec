"""The metric families of the gateway, in one registry of its own.

Names and shapes follow what operators already graph (vLLM's and SMG's metrics), with the prefix `baton_`. Label values come
only from closed sets (see `telemetry.py`), so that no client can make the number of series grow.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

PREFIX = "baton_"

_LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2, 0.5, 1.0, 2.5)
_FIRST_TOKEN_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0)
_DURATION_BUCKETS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0)

_BY_MODEL = ("endpoint", "model")


class Families:
    """Every family that requests write to. Durations are in seconds."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            PREFIX + "requests", "Requests to a model that have ended.", (*_BY_MODEL, "status", "error_code"), registry=registry
        )
        self.finishes = Counter(
            PREFIX + "request_finishes", "Successful requests by finish reason.", (*_BY_MODEL, "reason"), registry=registry
        )
        self.in_flight = Gauge(
            PREFIX + "requests_in_flight", "Requests to a model that have not ended.", (*_BY_MODEL, "stream"), registry=registry
        )
        self.duration = _histogram(
            "request_duration_seconds", "From the decoded request to its end.", _DURATION_BUCKETS_S, registry
        )
        self.first_token = _histogram(
            "time_to_first_token_seconds", "From the decoded request to its first token.", _FIRST_TOKEN_BUCKETS_S, registry
        )
        self.inter_token = _histogram(
            "inter_token_latency_seconds",
            "Between the tokens of one request (of all its choices).",
            _LATENCY_BUCKETS_S,
            registry,
        )
        self.prompt_tokens = Counter(PREFIX + "prompt_tokens", "Prompt tokens of ended requests.", _BY_MODEL, registry=registry)
        self.cached_prompt_tokens = Counter(
            PREFIX + "cached_prompt_tokens", "Prompt tokens that a prefix cache answered.", _BY_MODEL, registry=registry
        )
        self.generation_tokens = Counter(PREFIX + "generation_tokens", "Generated tokens.", _BY_MODEL, registry=registry)
        self.responses = Counter(
            PREFIX + "http_responses", "HTTP responses of every kind.", ("method", "status"), registry=registry
        )
        ProcessCollector(registry=registry)


def _histogram(name: str, text: str, buckets: tuple[float, ...], registry: CollectorRegistry) -> Histogram:
    return Histogram(PREFIX + name, text, _BY_MODEL, buckets=buckets, registry=registry)
