"""The named events of the Responses API: passed on as they came, read only where they say how the answer ended.

Source: OpenAI API reference, "Responses streaming".
"""

from backends.remote.errors import from_event, protocol_error
from backends.remote.json_fields import encode, read_object, text
from backends.remote.meaning import read_usage
from backends.remote.sse import Event
from backends.remote.stream_rewriter import StreamRewriter
from backends.types import FinishReason

_ENDS: dict[bytes, FinishReason] = {b"response.completed": "stop", b"response.incomplete": "length"}
_FAILURES = (b"response.failed", b"error")


class ResponsesEvents(StreamRewriter):
    """Passes events on; there is no `[DONE]` in this API."""

    def __init__(self, public_model: str, max_event_bytes: int) -> None:
        super().__init__(public_model, max_event_bytes)
        self._events = 0
        self._told = False

    def closing(self) -> bytes:
        """An `error` event, unless the stream ended properly or the upstream has sent one itself."""
        if self.error is None or self._told:
            return b""
        body = {
            "type": "error",
            "code": self.error.code,
            "message": self.error.message,
            "param": self.error.param,
            "sequence_number": self._events,
        }
        return b"event: error\ndata: " + encode(body) + b"\n\n"

    def _ended_early(self) -> None:
        if self.saw_output:
            self.fail(protocol_error("The upstream server ended its answer without a last event."))
        self.ended = True

    def _rewrite(self, event: Event) -> bytes:
        data = event.data
        if data.startswith(b"[DONE]"):
            return b""
        name = event.name or text(read_object(data, "event").get("type")).encode()
        if name in _ENDS:
            self._end(name, data)
        elif name in _FAILURES:
            self._fail(data)
        elif name.endswith(b".delta"):
            self.saw_output = True
            self.output_events += 1
        self._events += 1
        if b"\n" in data:
            data = encode(read_object(data, "event"))
        return b"event: " + name + b"\ndata: " + self._model.put(data) + b"\n\n"

    def _end(self, name: bytes, data: bytes) -> None:
        response = read_object(data, "event").get("response")
        self.usage = read_usage(response.get("usage")) if isinstance(response, dict) else None
        self.finish = _ENDS[name]
        self.saw_output = self.ended = True

    def _fail(self, data: bytes) -> None:
        body = read_object(data, "event")
        response = body.get("response")
        inner = response.get("error") if isinstance(response, dict) else body.get("error")
        error = from_event(inner or body)
        if not self.saw_output:
            raise error
        self._told = True
        self.fail(error)
