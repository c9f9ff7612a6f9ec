"""Builds what sends traces, and loads OpenTelemetry only then."""

from collections.abc import Mapping

from gateway.telemetry.config import TelemetryConfig
from gateway.telemetry.tracing import Tracing


class TracingUnavailable(Exception):
    """Traces are configured, and OpenTelemetry is not installed."""


def build_tracing(config: TelemetryConfig, version: str, environ: Mapping[str, str]) -> Tracing | None:
    """Build what sends traces; None when no endpoint is configured.

    Raises:
        TracingUnavailable: the extra `otel` is not installed.
    """
    if not config.otlp_endpoint:
        return None
    try:
        from gateway.telemetry.otlp import OtlpTracing
    except ModuleNotFoundError as error:
        text = f"telemetry.otlp_endpoint needs {error.name}, which is not installed. Run: pip install 'baton-llm[otel]'"
        raise TracingUnavailable(text) from error
    return OtlpTracing(config, version, environ.get(config.otlp_headers_env, ""))
