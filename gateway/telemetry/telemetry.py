"""Where requests are observed and metrics are read.

Labels stay bounded: a model that is not configured is counted as `unknown`, an error code outside `gateway.telemetry.blame` as
`other`, a method outside HTTP's own as `OTHER`. Endpoints are literals in our own handlers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import perf_counter

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from backends.types import Health
from gateway.telemetry.aliases import VllmAliases
from gateway.telemetry.engine import EngineCollector
from gateway.telemetry.families import RequestFamilies, Series
from gateway.telemetry.figures import PREFIX, Amounts, counter, gauge
from gateway.telemetry.live import Live
from gateway.telemetry.merge import render
from gateway.telemetry.observation import Observation
from gateway.telemetry.settled import SettledFamilies
from gateway.telemetry.snapshot import GatewaySnapshot, SnapshotFamilies
from gateway.telemetry.tracing import Tracing
from gateway.telemetry.upstream import UpstreamFamilies, UpstreamSeries
from gateway.telemetry.usage import UsageToday

UNKNOWN_MODEL = "unknown"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Telemetry:
    """All metrics of one gateway. Written and read by the event loop alone.

    Args:
        models: names that may become a label value.
        version: of the gateway, for `baton_build_info`.
        clock: monotonic seconds.

    Attributes:
        live: the last five minutes.
        usage: what each key used today.
        tracing: None where no traces are sent.
    """

    def __init__(
        self,
        models: Iterable[str],
        *,
        version: str = "",
        tracing: Tracing | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.live = Live(clock)
        self.usage = UsageToday()
        self.tracing = tracing
        self._models = frozenset(models)
        self._clock = clock
        self._series: dict[tuple[str, str], Series] = {}
        self._upstreams: dict[str, UpstreamSeries] = {}
        self._settled = SettledFamilies()
        self._http = _HttpFamilies(version)
        self._engine = EngineCollector()
        self._snapshot = SnapshotFamilies()
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        for collector in (
            self._http,
            RequestFamilies(self._series),
            UpstreamFamilies(self._upstreams),
            self._settled,
            self._snapshot,
            self._engine,
            VllmAliases(self._series, self._engine),
        ):
            self._registry.register(collector)

    def begin(self, endpoint: str, model: str, stream: bool) -> Observation:
        """Start observing a request. `endpoint` is a literal of the caller, `model` whatever the client wrote."""
        series = self._series.get((endpoint, model)) or self._new_series(endpoint, model)
        return Observation(series, self.live, self._settled, self._clock, stream=stream)

    def know(self, models: Iterable[str]) -> None:
        """Let more names become label values, after a reload; those that were known stay."""
        self._models |= frozenset(models)

    def upstream(self, deployment: str) -> UpstreamSeries:
        """What attempts at a deployment are written to. The name comes from the configuration."""
        return self._upstreams.setdefault(deployment, UpstreamSeries())

    def watch(self, snapshot: Callable[[], GatewaySnapshot], queue_depth: Callable[[], int]) -> None:
        """Say where the figures are that live elsewhere.

        Args:
            snapshot: asked at each scrape.
            queue_depth: how many requests wait, in all queues; asked once a second at most.
        """
        self._snapshot.read = snapshot
        self.live.queue_depth = queue_depth

    def response(self, method: str, status: int) -> None:
        """Count an HTTP response of any route."""
        responses = self._http.responses
        key = (method if method in _METHODS else "OTHER", status)
        responses[key] = responses.get(key, 0) + 1

    def exposition(self, healths: Mapping[str, Health], accept: str = "") -> tuple[bytes, str]:
        """Render all metrics; `accept` is the scraper's Accept header. Returns the body and its content type."""
        return render(self.collect(healths), accept)

    def collect(self, healths: Mapping[str, Health]) -> list[Metric]:
        """All metrics, not yet rendered."""
        self._engine.healths = healths
        return list(self._registry.collect())

    def _new_series(self, endpoint: str, model: str) -> Series:
        key = (endpoint, model if model in self._models else UNKNOWN_MODEL)
        return self._series.setdefault(key, Series(*key))


class _HttpFamilies(Collector):
    """Responses by (method, status), and what this is."""

    def __init__(self, version: str) -> None:
        self.responses: dict[tuple[str, int], int] = {}
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        responses: Amounts = {(method, str(status)): count for (method, status), count in self.responses.items()}
        yield gauge(PREFIX + "build_info", "Always 1.", ("version",), {(self._version,): 1.0})
        yield counter(PREFIX + "http_responses", "HTTP responses of every kind.", ("method", "status"), responses)
