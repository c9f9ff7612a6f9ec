"""The metric families of requests, collected from the series of each endpoint and model.

Names and shapes follow what operators already graph (vLLM's and SMG's metrics), with the prefix `baton_`. Label values come
only from closed sets (see `telemetry.py`), so that no client can make the number of series grow.
"""

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.telemetry.blame import blame_for
from gateway.telemetry.figures import PREFIX, Amounts, Times, add, counter, gauge, histogram

_LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2, 0.5, 1.0, 2.5)
FIRST_TOKEN_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0)
_DURATION_BUCKETS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0)
_WAIT_BUCKETS_S = (0.0, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0)

_BY_MODEL = ("endpoint", "model")
_TIMES = (
    ("request_duration_seconds", "From the decoded request to its end.", "duration"),
    ("time_to_first_token_seconds", "From the decoded request to its first token.", "first_token"),
    ("inter_token_latency_seconds", "Between the tokens of one request (of all its choices).", "inter_token"),
    ("queue_wait_seconds", "Spent in the admission queue.", "queue_wait"),
)
_TOKENS = (
    ("prompt_tokens", "Prompt tokens of ended requests.", "prompt_tokens"),
    ("cached_prompt_tokens", "Prompt tokens that a prefix cache answered.", "cached_prompt_tokens"),
    ("generation_tokens", "Generated tokens.", "generation_tokens"),
)


class Series:
    """What is known of the requests of one (endpoint, model). Written by `Observation`.

    `requests` and `finishes` count by (status, error code) and by finish reason; `in_flight` by whether they stream.
    """

    __slots__ = (
        "cached_prompt_tokens",
        "duration",
        "finishes",
        "first_token",
        "generation_tokens",
        "in_flight",
        "inter_token",
        "labels",
        "prompt_tokens",
        "queue_wait",
        "requests",
    )

    def __init__(self, endpoint: str, model: str) -> None:
        self.labels = (endpoint, model)
        self.duration = Times(_DURATION_BUCKETS_S)
        self.first_token = Times(FIRST_TOKEN_BUCKETS_S)
        self.inter_token = Times(_LATENCY_BUCKETS_S)
        self.queue_wait = Times(_WAIT_BUCKETS_S)
        self.requests: dict[tuple[int, str], int] = {}
        self.finishes: dict[str, int] = {}
        self.in_flight = {True: 0, False: 0}
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.generation_tokens = 0


class RequestFamilies(Collector):
    """Exports all series there are."""

    def __init__(self, series: Mapping[tuple[str, str], Series]) -> None:
        self._series = series

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        every = self._series.values()
        requests: Amounts = {}
        errors: Amounts = {}
        for one in every:
            for (status, code), count in one.requests.items():
                add(requests, (*one.labels, str(status), code), count)
                if code:
                    add(errors, (*one.labels, blame_for(code, status)), count)
        finishes: Amounts = {(*one.labels, reason): n for one in every for reason, n in one.finishes.items()}
        in_flight: Amounts = {(*one.labels, str(s).lower()): n for one in every for s, n in one.in_flight.items()}
        by_code, by_blame = (*_BY_MODEL, "status", "error_code"), (*_BY_MODEL, "blame")
        yield counter(PREFIX + "requests", "Requests to a model that have ended.", by_code, requests)
        yield counter(PREFIX + "request_errors", "Requests that failed, by who is to blame.", by_blame, errors)
        by_reason, by_stream = (*_BY_MODEL, "reason"), (*_BY_MODEL, "stream")
        yield counter(PREFIX + "request_finishes", "Successful requests by finish reason.", by_reason, finishes)
        yield gauge(PREFIX + "requests_in_flight", "Requests to a model that have not ended.", by_stream, in_flight)
        for name, text, field in _TIMES:
            yield histogram(PREFIX + name, text, _BY_MODEL, [(one.labels, getattr(one, field)) for one in every])
        for name, text, field in _TOKENS:
            yield counter(PREFIX + name, text, _BY_MODEL, {one.labels: getattr(one, field) for one in every})
