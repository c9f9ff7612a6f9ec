"""Where requests are observed and metrics are read.

Labels stay bounded: a model that is not configured is counted as `unknown`, an error code outside the list below as `other`, a
method outside HTTP's own as `OTHER`. Endpoints are literals in our own handlers.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import Gauge
from prometheus_client.exposition import choose_encoder

from backends.types import Health
from gateway.telemetry.aliases import VllmAliases
from gateway.telemetry.engine import EngineCollector
from gateway.telemetry.families import PREFIX, Families
from gateway.telemetry.observation import Observation, Series

UNKNOWN_MODEL = "unknown"

ERROR_CODES = frozenset(
    {
        "client_closed_request",
        "context_length_exceeded",
        "engine_failed",
        "engine_overloaded",
        "internal_error",
        "invalid_api_key",
        "invalid_type",
        "invalid_value",
        "missing_required_parameter",
        "model_loading",
        "model_not_found",
        "model_unavailable",
        "none",
        "request_too_large",
        "timeout",
        "unsupported_parameter",
        "unsupported_value",
    }
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Telemetry:
    """All metrics of one gateway.

    Args:
        models: names that may become a label value.
        version: of the gateway, for `baton_build_info`.
    """

    def __init__(self, models: Iterable[str], *, version: str = "") -> None:
        self._models = frozenset(models)
        self._families = Families()
        self._series: dict[tuple[str, str], Series] = {}
        self._engine = EngineCollector()
        registry = self._families.registry
        Gauge(PREFIX + "build_info", "Always 1.", ("version",), registry=registry).labels(version).set(1)
        registry.register(self._engine)
        registry.register(VllmAliases(self._families, self._engine))

    def begin(self, endpoint: str, model: str, stream: bool) -> Observation:
        """Start observing a request. `endpoint` is a literal of the caller, `model` whatever the client wrote."""
        key = (endpoint, model if model in self._models else UNKNOWN_MODEL)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(self._families, *key)
        return Observation(series, stream=stream, error_codes=ERROR_CODES)

    def response(self, method: str, status: int) -> None:
        """Count an HTTP response of any route."""
        self._families.responses.labels(method if method in _METHODS else "OTHER", str(status)).inc()

    def exposition(self, healths: Mapping[str, Health], accept: str = "") -> tuple[bytes, str]:
        """Render all metrics; `accept` is the scraper's Accept header. Returns the body and its content type."""
        self._engine.healths = healths
        encode, content_type = choose_encoder(accept)
        return encode(self._families.registry), content_type
