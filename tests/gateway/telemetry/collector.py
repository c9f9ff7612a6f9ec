"""An OTLP/HTTP collector on the loopback interface that keeps what it gets."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """`url` is its base; `status` is what it answers. `spans` are protobuf messages in the order of their arrival."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.paths.append(path)
        self.headers.append(headers)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes_of(group.resource))
            self.spans += [span for scope in group.scope_spans for span in scope.spans]


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a span, an event or a resource as plain values."""
    return {pair.key: _plain(pair.value) for pair in message.attributes}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_plain(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector until the block ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if collector.status == 200:
                collector.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
