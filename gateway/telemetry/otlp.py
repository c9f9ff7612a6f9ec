"""Traces by OpenTelemetry's SDK, sent by OTLP over HTTP in batches from a thread of its own.

A collector that is slow or down costs spans and never a request: the queue holds 4,096 spans, and what comes while it is full
is dropped. A trace that is not sampled costs no spans, and upstreams learn that it is not.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, format_span_id, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

from backends.errors import BackendError
from backends.types import FinishReason, Usage
from gateway.telemetry.config import TelemetryConfig
from gateway.telemetry.tracing import Attributes, Headers

logger = logging.getLogger(__name__)

_QUEUE_SPANS = 4096
_BATCH_SPANS = 512
_SEND_EVERY_MS = 1000
_EXPORT_TIMEOUT_S = 5
_CLOSE_TIMEOUT_S = 2.0
_COMPLAIN_EVERY_S = 60.0

_context = TraceContextTextMapPropagator()


class OtlpTracing:
    """See `gateway.telemetry.tracing.Tracing`.

    Args:
        headers: for the collector, as `name=value,name=value`.
    """

    def __init__(self, config: TelemetryConfig, version: str, headers: str) -> None:
        # The SDK complains about each failed batch, and twice; `PatientExporter` says it once a minute.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        parsed = parse_env_headers(headers, liberal=True)
        exporter = OTLPSpanExporter(endpoint=config.traces_url, headers=parsed, timeout=_EXPORT_TIMEOUT_S)
        self._exporter = PatientExporter(exporter, config.traces_url)
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.sample_ratio)),
            resource=Resource.create({"service.name": config.service_name, "service.version": version}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=_QUEUE_SPANS,
                schedule_delay_millis=_SEND_EVERY_MS,
                max_export_batch_size=_BATCH_SPANS,
            )
        )
        self._tracer = self._provider.get_tracer("baton", version)
        self._is_closed = False

    def begin(self, traceparent: str | None, tracestate: str | None) -> "OtlpRequest":
        """See `Tracing.begin`. A malformed header begins a new trace."""
        context = Context()
        if traceparent is not None:
            context = _context.extract({"traceparent": traceparent, "tracestate": tracestate or ""}, context)
        return OtlpRequest(self._tracer, self._tracer.start_span("request", context, kind=SpanKind.SERVER))

    async def close(self) -> None:
        """See `Tracing.close`."""
        if self._is_closed:
            return
        self._is_closed = True
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            # The loop may be gone by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        # The SDK waits as long as its exporter does, and a thread of the loop's pool would hold up the exit.
        Thread(target=shut_down, name="tracing-close", daemon=True).start()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await done.wait()
        except TimeoutError:
            self._exporter.has_given_up = True


class OtlpRequest:
    """See `gateway.telemetry.tracing.RequestTrace`."""

    __slots__ = ("_span", "_tracer", "span_id", "trace_id")

    def __init__(self, tracer: Tracer, span: Span) -> None:
        context = span.get_span_context()
        self.trace_id = format_trace_id(context.trace_id)
        self.span_id = format_span_id(context.span_id)
        self._tracer = tracer
        self._span = span

    def attempt(self, operation: str, deployment: str, provider: str) -> "OtlpAttempt":
        """See `RequestTrace.attempt`."""
        parent = set_span_in_context(self._span, Context())
        if not self._span.is_recording():
            return OtlpAttempt(self._span, parent)
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": deployment,
            "baton.deployment": deployment,
        }
        span = self._tracer.start_span(f"{operation} {deployment}", parent, kind=SpanKind.CLIENT, attributes=attributes)
        return OtlpAttempt(span, set_span_in_context(span, Context()))

    def end(self, name: str, attributes: Attributes, error: str | None, *, is_fault: bool) -> None:
        """See `RequestTrace.end`."""
        span = self._span
        span.update_name(name)
        span.set_attributes(attributes)
        if error is not None:
            span.set_attribute("error.type", error)
            if is_fault:
                span.set_status(Status(StatusCode.ERROR))
        span.end()


class OtlpAttempt:
    """See `gateway.telemetry.tracing.AttemptTrace`. Where nothing is recorded it holds the request's span, which drops all."""

    __slots__ = ("_span", "headers")

    def __init__(self, span: Span, context: Context) -> None:
        carrier: dict[str, str] = {}
        _context.inject(carrier, context)
        self.headers: Headers = [(name.encode(), value.encode("latin-1")) for name, value in carrier.items()]
        self._span = span

    def first_output(self) -> None:
        """See `AttemptTrace.first_output`."""
        self._span.add_event("gen_ai.first_output")

    def describe(self, usage: Usage | None, finish: FinishReason | None) -> None:
        """See `AttemptTrace.describe`."""
        if usage is not None:
            self._span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
            self._span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
        if finish is not None:
            self._span.set_attribute("gen_ai.response.finish_reasons", [finish])

    def end(self, error: BackendError | None = None, *, cancelled: bool = False) -> None:
        """See `AttemptTrace.end`."""
        if error is not None:
            self._span.set_attribute("error.type", error.code or type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR))
        elif cancelled:
            self._span.set_attribute("baton.cancelled", True)
        self._span.end()


class PatientExporter(SpanExporter):
    """Says once a minute that spans were lost, instead of for each batch. One that has given up sends nothing more."""

    def __init__(self, exporter: SpanExporter, url: str, clock: Callable[[], float] = monotonic) -> None:
        self._exporter = exporter
        self._url = url
        self._clock = clock
        self.has_given_up = False
        self._lost = 0
        self._quiet_until = float("-inf")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch."""
        result = SpanExportResult.FAILURE if self.has_given_up else self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            if self._clock() >= self._quiet_until:
                self._quiet_until = self._clock() + _COMPLAIN_EVERY_S
                logger.warning("%d spans were lost: %s does not take them", self._lost, self._url)
                self._lost = 0
        return result

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is held here."""
        return self._exporter.force_flush(timeout_millis)
