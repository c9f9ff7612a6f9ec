"""One log line, one metric and, where traces are sent, one span per request, when its response has ended.

The line holds no query string, no header but the user agent, and nothing of the bodies but their size. Of a request to a model
it says which one, who answered, what it took and what it cost, in the field names of ECS and of OpenTelemetry's conventions.
"""

import logging
from time import perf_counter
from typing import Any

from gateway.call import Call
from gateway.middleware.asgi import ASGIApp, Message, Receive, Scope, Send
from gateway.middleware.reply import header
from gateway.telemetry.logs import log_fields
from gateway.telemetry.observation import CLIENT_CLOSED_STATUS
from gateway.telemetry.telemetry import Telemetry
from gateway.telemetry.tracing import RequestTrace, Tracing, current_trace, operation_of

_QUIET_PREFIXES = ("/health", "/metrics")
_MAX_TEXT_CHARS = 256

logger = logging.getLogger("gateway.access")

Fields = dict[str, Any]


class AccessLog:
    """Logs at INFO; health checks and scrapes, which come every few seconds, at DEBUG and without a span."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = perf_counter()
        status, sent_bytes, complete = CLIENT_CLOSED_STATUS, 0, False
        tracing = self._telemetry.tracing
        trace = None if tracing is None else _begin_trace(tracing, scope)

        async def counting_send(message: Message) -> None:
            nonlocal status, sent_bytes, complete
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                sent_bytes += len(message["body"])
                complete = not message.get("more_body", False)

        try:
            await self._app(scope, receive, counting_send)
        except Exception:
            status = 500
            raise
        finally:
            self._telemetry.response(scope["method"], status)
            self._record(scope, trace, status, sent_bytes, complete, perf_counter() - begun)

    def _record(
        self, scope: Scope, trace: RequestTrace | None, status: int, sent_bytes: int, complete: bool, duration_s: float
    ) -> None:
        """Write the line and end the span."""
        level = logging.DEBUG if scope["path"].startswith(_QUIET_PREFIXES) else logging.INFO
        is_logged = logger.isEnabledFor(level)
        if trace is None and not is_logged:
            return
        call: Call | None = scope.get("state", {}).get("call")
        fields = _describe(scope, call, status, sent_bytes)
        if is_logged:
            message = f"{scope['method']} {fields['url.path']} {status}"
            is_well = status < 400 and complete and "error.code" not in fields
            outcome = {"event.duration": int(duration_s * 1e9), "event.outcome": "success" if is_well else "failure"}
            log_fields(logger, level, message, outcome | fields)
        if trace is not None:
            current_trace.set(None)
            _end_trace(trace, scope["method"], call, fields, complete)


def _describe(scope: Scope, call: Call | None, status: int, sent_bytes: int) -> Fields:
    client = scope.get("client")
    fields: Fields = {
        "http.request.method": scope["method"],
        "url.path": scope["path"][:_MAX_TEXT_CHARS],
        "http.response.status_code": status,
        "http.response.body.bytes": sent_bytes,
        "client.ip": client[0] if client else None,
        "user_agent.original": (header(scope, b"user-agent") or "")[:_MAX_TEXT_CHARS],
    }
    if call is not None:
        _describe_call(fields, call)
    return fields


def _describe_call(fields: Fields, call: Call) -> None:
    """Add what the call asked for and what became of it. Times are in seconds; what did not happen is left out."""
    trail, usage = call.trail, call.usage
    fields["gen_ai.operation.name"] = operation_of(call.endpoint)
    fields["gen_ai.request.model"] = call.model[:_MAX_TEXT_CHARS]
    fields["baton.key.id"] = call.identity.key_id
    fields["baton.priority"] = call.priority
    fields["baton.queue_s"] = round(trail.waited_s, 6)
    if trail.deployment:
        fields["baton.deployment"] = trail.deployment
        fields["baton.attempts"] = trail.attempts
    if trail.first_output_s:
        fields["baton.ttft_s"] = round(trail.first_output_s, 6)
    if usage is not None:
        fields["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        fields["gen_ai.usage.output_tokens"] = usage.completion_tokens
        fields["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if trail.finish is not None:
        fields["gen_ai.response.finish_reasons"] = [trail.finish]
    if trail.error:
        fields["error.code"] = trail.error
    if trail.cost_usd:
        fields["baton.cost_usd"] = trail.cost_usd
    if trail.fallback:
        fields["baton.fallback"], fields["baton.fallback_reason"] = trail.fallback, trail.reason
    if trail.canary:
        fields["baton.canary"] = True
    if trail.hedged:
        fields["baton.hedged"] = True


def _begin_trace(tracing: Tracing, scope: Scope) -> RequestTrace | None:
    if scope["path"].startswith(_QUIET_PREFIXES):
        return None
    trace = tracing.begin(header(scope, b"traceparent"), header(scope, b"tracestate"))
    current_trace.set(trace)
    return trace


def _end_trace(trace: RequestTrace, method: str, call: Call | None, fields: Fields, complete: bool) -> None:
    """Name the span by what is bounded: the operation and the model that was found, or else the method."""
    status: int = fields["http.response.status_code"]
    found = call is not None and bool(call.trail.deployment)
    name = f"{fields['gen_ai.operation.name']} {fields['gen_ai.request.model']}" if found else method
    error = fields.get("error.code") or (str(status) if status >= 400 else None if complete else "incomplete")
    attributes = {key: value for key, value in fields.items() if value is not None}
    trace.end(name, attributes, error, is_fault=status >= 500 or (error is not None and status < 400))
