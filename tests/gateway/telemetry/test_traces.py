"""Traces as a collector gets them."""

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from time import monotonic

import pytest

from backends.errors import Failed
from backends.types import Usage
from gateway.telemetry.build import TracingUnavailable, build_tracing
from gateway.telemetry.config import TelemetryConfig
from gateway.telemetry.tracing import Tracing

pytest.importorskip("opentelemetry.sdk")

from tests.gateway.telemetry.collector import Collector, attributes_of, collecting

SERVER, CLIENT = 2, 3
ERROR = 2
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def start(url: str, environ: dict[str, str] | None = None, **settings: object) -> Tracing:
    config = TelemetryConfig(otlp_endpoint=url, **settings)  # type: ignore[arg-type]
    tracing = build_tracing(config, "1.2.3", environ or {})
    assert tracing is not None
    return tracing


def headers_of(attempt) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in attempt.headers}


def test_nothing_is_built_and_imported_without_an_endpoint():
    program = """
import sys
from gateway.telemetry.config import TelemetryConfig
from gateway.telemetry.build import build_tracing
from gateway.telemetry.telemetry import Telemetry
assert build_tracing(TelemetryConfig(), "1", {}) is None
Telemetry(["a"])
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "google"))])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gateway.telemetry.otlp", None)
    with pytest.raises(TracingUnavailable, match=r"baton-llm\[otel\]"):
        start("http://127.0.0.1:1")


async def test_request_and_attempt_arrive_as_one_trace(collector):
    tracing = start(collector.url, {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b"}, service_name="edge-7")
    trace = tracing.begin(None, None)
    attempt = trace.attempt("chat", "gpu-1", "openai")
    sent = headers_of(attempt)
    attempt.first_output()
    attempt.describe(Usage(10, 20, 3), "stop")
    attempt.end()
    trace.end("chat llama", {"gen_ai.request.model": "llama"}, None, is_fault=False)
    await tracing.close()
    client, server = collector.spans
    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["x-key"] == "a b"
    assert collector.resources[0]["service.name"] == "edge-7"
    assert collector.resources[0]["service.version"] == "1.2.3"
    assert (server.name, server.kind) == ("chat llama", SERVER)
    assert (client.name, client.kind) == ("chat gpu-1", CLIENT)
    assert client.trace_id == server.trace_id
    assert client.parent_span_id == server.span_id
    assert not server.parent_span_id
    assert (trace.trace_id, trace.span_id) == (server.trace_id.hex(), server.span_id.hex())
    assert sent.keys() == {"traceparent"}
    version, trace_id, span_id, flags = sent["traceparent"].split("-")
    assert (version, trace_id, span_id) == ("00", client.trace_id.hex(), client.span_id.hex())
    assert int(flags, 16) & 1
    assert attributes_of(server) == {"gen_ai.request.model": "llama"}
    assert attributes_of(client) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpu-1",
        "baton.deployment": "gpu-1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.response.finish_reasons": ["stop"],
    }
    assert [event.name for event in client.events] == ["gen_ai.first_output"]


async def test_trace_of_the_client_goes_on(collector):
    tracing = start(collector.url, sample_ratio=0.0)
    trace = tracing.begin(f"00-{TRACE}-{PARENT}-01", "vendor=x")
    attempt = trace.attempt("chat", "gpu-1", "openai")
    attempt.end()
    trace.end("chat llama", {}, None, is_fault=False)
    await tracing.close()
    client, server = collector.spans
    assert server.trace_id.hex() == client.trace_id.hex() == TRACE
    assert server.parent_span_id.hex() == PARENT
    assert headers_of(attempt) == {"traceparent": f"00-{TRACE}-{client.span_id.hex()}-01", "tracestate": "vendor=x"}


@pytest.mark.parametrize("bad", ["", "00-xyz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff-" + "1" * 32, "é" * 5000])
async def test_malformed_trace_of_a_client_is_ignored(collector, bad):
    tracing = start(collector.url)
    tracing.begin(bad, "also bad").end("POST", {}, None, is_fault=False)
    await tracing.close()
    (span,) = collector.spans
    assert not span.parent_span_id


@pytest.mark.parametrize("traceparent", [None, f"00-{TRACE}-{PARENT}-00"])
async def test_trace_that_is_not_sampled_is_only_handed_on(collector, traceparent):
    tracing = start(collector.url, sample_ratio=0.0 if traceparent is None else 1.0)
    trace = tracing.begin(traceparent, None)
    attempt = trace.attempt("chat", "gpu-1", "openai")
    attempt.first_output()
    attempt.describe(Usage(), "stop")
    attempt.end(Failed("broke"))
    trace.end("chat llama", {"a": 1}, "502", is_fault=True)
    await tracing.close()
    assert collector.spans == []
    sent = headers_of(attempt)["traceparent"]
    assert not int(sent.rpartition("-")[2], 16) & 1
    assert traceparent is None or TRACE in sent
    assert trace.span_id in sent


async def test_errors_are_named(collector):
    tracing = start(collector.url)
    trace = tracing.begin(None, None)
    failed, cancelled = trace.attempt("chat", "gpu-1", "openai"), trace.attempt("chat", "gpu-2", "baton")
    failed.end(Failed("broke", code="upstream_error"))
    cancelled.end(cancelled=True)
    trace.end("chat llama", {}, "upstream_error", is_fault=True)
    tracing.begin(None, None).end("POST", {}, "404", is_fault=False)
    await tracing.close()
    first, second, server, other = collector.spans
    assert attributes_of(first)["error.type"] == "upstream_error"
    assert first.status.code == ERROR
    assert attributes_of(second)["baton.cancelled"] is True
    assert second.status.code == 0
    assert (attributes_of(server)["error.type"], server.status.code) == ("upstream_error", ERROR)
    assert (attributes_of(other)["error.type"], other.status.code) == ("404", 0)


async def test_share_of_the_traces_is_recorded(collector):
    tracing = start(collector.url, sample_ratio=0.25)
    for _ in range(400):
        tracing.begin(None, None).end("POST", {}, None, is_fault=False)
    await tracing.close()
    assert 60 <= len(collector.spans) <= 145


async def test_collector_that_is_down_costs_nothing_but_spans():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tracing = start(url)
        begun = monotonic()
        for _ in range(6000):
            trace = tracing.begin(None, None)
            trace.attempt("chat", "gpu-1", "openai").end()
            trace.end("chat llama", {}, None, is_fault=False)
        taken_s = monotonic() - begun
        begun = monotonic()
        await tracing.close()
        await tracing.close()
        assert monotonic() - begun < 4
    assert taken_s < 30
    # With its server gone the exporter gives up, and what it says of that belongs to this test.
    for thread in threading.enumerate():
        if thread.name == "tracing-close":
            thread.join(30)


async def test_lost_spans_are_reported_once(collector, caplog):
    collector.status = 400
    tracing = start(collector.url)
    for _ in range(1200):
        tracing.begin(None, None).end("POST", {}, None, is_fault=False)
    with caplog.at_level(logging.WARNING):
        await tracing.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "were lost" in line]) == 1
    assert all("spans were lost" in line for line in lines)
    assert f"{collector.url}/v1/traces" in lines[0]
