"""Which trace the work that runs now belongs to, for whoever sends a part of it to another server.

A context variable, because it concerns every hop and is nobody's parameter; it is empty unless traces are recorded.
"""

from contextvars import ContextVar

from backends.forwarding import Headers

trace_headers: ContextVar[Headers] = ContextVar("trace_headers", default=[])  # noqa: B039 (never changed in place)
"""The headers of W3C Trace Context, `traceparent` and perhaps `tracestate`, that go to an upstream."""

TRACE_HEADER_NAMES = frozenset({b"traceparent", b"tracestate"})
