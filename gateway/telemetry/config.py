"""The section `[telemetry]`: where traces go. Metrics and logs need no configuration."""

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

_TRACES_PATH = "/v1/traces"


class TelemetryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces are sent by OTLP over HTTP to `otlp_endpoint`, the base URL of a collector; empty sends none.

    `otlp_headers_env` names an environment variable with headers for the collector, as `name=value,name=value` with
    percent-encoded values (the format of OTEL_EXPORTER_OTLP_HEADERS), because such headers are secrets. Of requests without
    a trace of their own the share `sample_ratio` is recorded; a client's trace is recorded when the client's mark says so.
    """

    otlp_endpoint: str = ""
    otlp_headers_env: Annotated[str, Meta(max_length=128)] = "OTEL_EXPORTER_OTLP_HEADERS"
    sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    service_name: Annotated[str, Meta(min_length=1, max_length=128)] = "baton"

    def __post_init__(self) -> None:
        if not self.otlp_endpoint:
            return
        parts = urlsplit(self.otlp_endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("otlp_endpoint must begin with http:// or https:// and name a host")
        if parts.username or parts.password:
            raise ValueError("otlp_endpoint must hold no password: use the variable that otlp_headers_env names")

    @property
    def traces_url(self) -> str:
        """Where traces are posted: the endpoint with `/v1/traces`, unless it ends so already."""
        base = self.otlp_endpoint.rstrip("/")
        return base if base.endswith(_TRACES_PATH) else base + _TRACES_PATH
