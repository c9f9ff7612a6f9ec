"""A request through a real gateway to a real upstream, as metrics, traces and logs tell it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

pytest.importorskip("opentelemetry.sdk")

from tests.gateway.telemetry.collector import attributes_of, collecting

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONFIG = """
[telemetry]
otlp_endpoint = "{collector}"

[retries]
base_delay_s = 0.001

[models.broken]
engine = "remote"
url = "{upstream}/broken"

[models.good]
engine = "remote"
url = "{upstream}/good"
forward_headers = ["traceparent"]

[prices.llama]
output_per_mtok = 100.0

[routes.llama]
policy = "weighted"
deployments = [{{ model = "broken", tier = 0 }}, {{ model = "good", tier = 1 }}]
"""
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
}


class Upstream:
    def __init__(self) -> None:
        self.url = ""
        self.seen: list[tuple[str, list[str]]] = []


@contextmanager
def serving() -> Iterator[Upstream]:
    upstream = Upstream()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, {"object": "list", "data": []})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            upstream.seen.append((self.path, self.headers.get_all("traceparent") or []))
            is_good = self.path.startswith("/good")
            self.reply(200 if is_good else 500, ANSWER if is_good else {"error": {"message": "broken"}})

        def reply(self, status: int, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    upstream.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield upstream
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_metrics_traces_and_logs_tell_the_same(start):
    with (
        serving() as upstream,
        collecting() as collector,
        start(CONFIG.format(collector=collector.url, upstream=upstream.url)) as gateway,
    ):
        body = {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        response = gateway.client.post("/v1/chat/completions", json=body, headers=headers)
        assert response.status_code == 200, response.text
        text = gateway.client.get("/metrics").text
        assert gateway.stop() == 0
        lines = [json.loads(line) for line in gateway.log().splitlines()]
    assert_metrics(text)
    (line,) = [line for line in lines if line["log.logger"] == "gateway.access"]
    assert line["trace.id"] == TRACE
    assert line["baton.attempts"] == 2
    assert line["baton.deployment"] == "good"
    assert line["baton.cost_usd"] == 0.0007
    spans = {span.name: span for span in collector.spans}
    server, broken, good = spans["chat llama"], spans["chat broken"], spans["chat good"]
    assert server.parent_span_id.hex() == PARENT
    assert {broken.parent_span_id, good.parent_span_id} == {server.span_id}
    assert attributes_of(broken)["error.type"] == "upstream_error"
    assert attributes_of(good)["gen_ai.usage.output_tokens"] == 7
    assert attributes_of(server)["baton.deployment"] == "good"
    sent = [(path, [header.split("-")[1:3] for header in seen]) for path, seen in upstream.seen]
    assert sent == [
        ("/broken/chat/completions", [[TRACE, broken.span_id.hex()]]),
        ("/good/chat/completions", [[TRACE, good.span_id.hex()]]),
    ]


def assert_metrics(text: str) -> None:
    for sample in (
        'baton_upstream_requests_total{deployment="broken",outcome="failed"} 1.0',
        'baton_upstream_requests_total{deployment="good",outcome="success"} 1.0',
        'baton_upstream_time_to_first_token_seconds_count{deployment="good"} 1.0',
        "baton_retries_total 1.0",
        'baton_cost_usd_total{model="llama"} 0.0007',
        'baton_key_tokens_total{key="anonymous"} 12.0',
        'baton_breaker_state{deployment="broken"} 0.0',
        'baton_deployment_healthy{deployment="good"} 1.0',
        'baton_deployment_outstanding{deployment="good"} 0.0',
        'baton_queue_depth{model="llama",priority="batch"} 0.0',
        'baton_queue_wait_seconds_count{endpoint="chat",model="llama"} 1.0',
        'baton_response_cache_total{outcome="hit"} 0.0',
    ):
        assert sample in text, sample
