"""What the line of a request says, and that its span says the same."""

import io
import json
import logging
from typing import Any

import pytest

from backends.types import Usage
from gateway.call import Call
from gateway.identity import Identity
from gateway.middleware.access_log import AccessLog
from gateway.middleware.asgi import Receive, Scope, Send
from gateway.telemetry.logs import configure_logging
from gateway.telemetry.telemetry import Telemetry
from gateway.telemetry.tracing import Attributes, current_trace

SECRET = "my-very-secret"


class Recorded:
    """A trace that remembers its end."""

    trace_id, span_id = "a" * 32, "b" * 16

    def __init__(self) -> None:
        self.ended: dict[str, Any] = {}

    def attempt(self, operation: str, deployment: str, provider: str) -> Any:
        raise AssertionError

    def end(self, name: str, attributes: Attributes, error: str | None, *, is_fault: bool) -> None:
        assert not self.ended
        self.ended = {"name": name, "attributes": attributes, "error": error, "is_fault": is_fault}


class Recorder:
    """Traces that are not sent."""

    def __init__(self) -> None:
        self.begun: list[tuple[str | None, str | None]] = []
        self.last = Recorded()

    def begin(self, traceparent: str | None, tracestate: str | None) -> Recorded:
        self.begun.append((traceparent, tracestate))
        self.last = Recorded()
        return self.last

    async def close(self) -> None: ...


@pytest.fixture
def log():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    yield stream
    root.handlers[:], level = before
    root.setLevel(level)


def finished_call() -> Call:
    call = Call("req_1", "chat", "llama", Identity(key_id="key_1", tenant="t", priority="batch"))
    call.usage = Usage(prompt_tokens=10, completion_tokens=20, cached_tokens=4)
    trail = call.trail
    trail.deployment, trail.attempts, trail.finish = "gpu-2", 2, "stop"
    trail.waited_s, trail.first_output_s, trail.cost_usd = 0.25, 0.5, 0.001
    return call


async def serve(
    log: io.StringIO, call: Call | None, telemetry: Telemetry | None = None, **options: Any
) -> dict[str, Any] | None:
    """Send one request through the middleware, and return its line."""
    status, complete, raises = options.get("status", 200), options.get("complete", True), options.get("raises")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if call is not None:
            scope["state"]["call"] = call
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"12345", "more_body": not complete})
        if raises is not None:
            raise raises

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None: ...

    headers = [(b"user-agent", b"curl"), (b"authorization", f"Bearer {SECRET}".encode()), *options.get("headers", ())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": options.get("path", "/v1/chat/completions"),
        "query_string": SECRET.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 5),
        "state": {},
    }
    try:
        await AccessLog(app, telemetry or Telemetry(["llama"]))(scope, receive, send)
    finally:
        logging.getLogger().handlers[0].flush()
        text = log.getvalue()
        log.truncate(0)
        log.seek(0)
        assert SECRET not in text
    return json.loads(text) if text else None


async def test_line_says_what_became_of_the_call(log):
    line = await serve(log, finished_call())
    assert line is not None
    assert line.pop("event.duration") > 0
    assert line.pop("@timestamp")
    assert line == {
        "log.level": "info",
        "log.logger": "gateway.access",
        "message": "POST /v1/chat/completions 200",
        "service.name": "baton",
        "event.outcome": "success",
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "http.response.status_code": 200,
        "http.response.body.bytes": 5,
        "client.ip": "127.0.0.1",
        "user_agent.original": "curl",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "llama",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.response.finish_reasons": ["stop"],
        "baton.key.id": "key_1",
        "baton.priority": "batch",
        "baton.queue_s": 0.25,
        "baton.ttft_s": 0.5,
        "baton.deployment": "gpu-2",
        "baton.attempts": 2,
        "baton.cost_usd": 0.001,
    }


async def test_line_says_what_was_not_the_plain_case(log):
    call = finished_call()
    trail = call.trail
    trail.fallback, trail.reason, trail.canary, trail.hedged = "backup", "upstream_error", True, True
    line = await serve(log, call)
    assert line is not None
    assert line["baton.fallback"] == "backup"
    assert line["baton.fallback_reason"] == "upstream_error"
    assert line["baton.canary"] is True
    assert line["baton.hedged"] is True


async def test_call_that_came_to_nothing_has_no_figures(log):
    line = await serve(log, Call("req_1", "completions", "m" * 5000), status=404)
    assert line is not None
    assert line["event.outcome"] == "failure"
    assert line["gen_ai.operation.name"] == "text_completion"
    assert line["gen_ai.request.model"] == "m" * 256
    assert not {"baton.deployment", "baton.ttft_s", "gen_ai.usage.input_tokens", "baton.cost_usd"} & line.keys()


async def test_other_requests_have_the_plain_line(log):
    line = await serve(log, None, path="/v1/models")
    assert line is not None
    assert not [name for name in line if name.startswith(("gen_ai.", "baton."))]


async def test_span_says_what_the_line_says(log):
    tracing = Recorder()
    line = await serve(log, finished_call(), Telemetry(["llama"], tracing=tracing))
    assert line is not None
    assert line["trace.id"] == "a" * 32
    assert line["span.id"] == "b" * 16
    ended = tracing.last.ended
    assert ended["name"] == "chat llama"
    assert ended["error"] is None
    attributes: Attributes = ended["attributes"]
    assert all(line[name] == value for name, value in attributes.items())
    assert {"gen_ai.usage.input_tokens", "url.path", "baton.deployment"} <= attributes.keys()
    assert current_trace.get() is None


async def test_trace_of_the_client_is_handed_on(log):
    tracing = Recorder()
    headers = [(b"traceparent", b"00-1-2-01"), (b"tracestate", b"vendor=1")]
    await serve(log, None, Telemetry([], tracing=tracing), headers=headers)
    assert tracing.begun == [("00-1-2-01", "vendor=1")]


@pytest.mark.parametrize("path", ["/health/ready", "/metrics"])
async def test_checks_and_scrapes_have_neither_line_nor_span(log, path):
    tracing = Recorder()
    assert await serve(log, None, Telemetry([], tracing=tracing), path=path) is None
    assert tracing.begun == []


@pytest.mark.parametrize(
    ("status", "complete", "error", "is_fault"),
    [(200, True, None, False), (404, True, "404", False), (502, True, "502", True), (200, False, "incomplete", True)],
)
async def test_errors_of_clients_are_no_faults(log, status, complete, error, is_fault):
    tracing = Recorder()
    await serve(log, None, Telemetry([], tracing=tracing), status=status, complete=complete)
    ended = tracing.last.ended
    assert (ended["name"], ended["error"], ended["is_fault"]) == ("POST", error, is_fault)


async def test_bug_is_a_500_and_still_has_its_line(log):
    tracing = Recorder()
    with pytest.raises(RuntimeError):
        await serve(log, finished_call(), Telemetry([], tracing=tracing), raises=RuntimeError("bug"))
    assert tracing.last.ended["error"] == "500"


@pytest.mark.parametrize("model", ["nobody-has-this", "x" * 100_000])
async def test_span_is_never_named_by_a_model_that_does_not_exist(log, model):
    tracing = Recorder()
    await serve(log, Call("req_1", "chat", model), Telemetry([], tracing=tracing), status=404)
    assert tracing.last.ended["name"] == "POST"
