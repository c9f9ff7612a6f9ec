"""Traces as the rest of the gateway sees them. Where none are sent, this costs one look at a context variable per attempt.

    one request    a SERVER span, from the head of the request to the end of the response
    one attempt    a CLIENT span below it, from the attempt to its end; its context goes to the upstream as `traceparent`

Names and attributes follow OpenTelemetry's semantic conventions for generative AI. OpenTelemetry itself is known only to
`gateway.telemetry.otlp`, which is imported when an endpoint is configured. Prompts and answers are in no span.

Source: W3C Trace Context, level 1; OpenTelemetry semantic conventions, "Gen AI" and "HTTP".
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from backends.errors import BackendError
from backends.types import FinishReason, Usage

Headers = list[tuple[bytes, bytes]]
Attributes = Mapping[str, str | bool | int | float | list[str]]

_OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings", "rerank": "rerank"}


class AttemptTrace(Protocol):
    """One attempt at one deployment.

    Attributes:
        headers: `traceparent`, and `tracestate` where the client sent one, for the upstream.
    """

    headers: Headers

    def first_output(self) -> None:
        """The first output is there."""
        ...

    def describe(self, usage: Usage | None, finish: FinishReason | None) -> None:
        """Add what the answer took and why it ended."""
        ...

    def end(self, error: BackendError | None = None, *, cancelled: bool = False) -> None:
        """It is over: well, with an error, or because nobody wants it any more. Called once."""
        ...


class RequestTrace(Protocol):
    """One request. `trace_id` and `span_id` are in hexadecimal, as in logs."""

    trace_id: str
    span_id: str

    def attempt(self, operation: str, deployment: str, provider: str) -> AttemptTrace:
        """An attempt begins."""
        ...

    def end(self, name: str, attributes: Attributes, error: str | None, *, is_fault: bool) -> None:
        """The response has ended. `error` is a code or a status; `is_fault` says that it is not the client's."""
        ...


class Tracing(Protocol):
    """Records traces and sends them, in the background."""

    def begin(self, traceparent: str | None, tracestate: str | None) -> RequestTrace:
        """A request begins, perhaps as part of a trace of the client, which these two headers name."""
        ...

    async def close(self) -> None:
        """Send what is left, within two seconds. May be called twice."""
        ...


current_trace: ContextVar[RequestTrace | None] = ContextVar("current_trace", default=None)
"""The trace of the request that is being served."""


def operation_of(endpoint: str) -> str:
    """What the conventions call the work of an endpoint."""
    return _OPERATIONS.get(endpoint, "chat")
