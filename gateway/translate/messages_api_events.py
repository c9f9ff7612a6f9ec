"""Deltas to the events of a Messages stream, in the order that anthropic-sdk-python accumulates them.

`message_start`; per content block `content_block_start`, deltas, `content_block_stop`; `message_delta` with the stop reason and
all usage; `message_stop`. A `ping` follows the first start of a block, as at Anthropic. How long the prompt is becomes known
with the end only, so the usage of `message_start` is 0 and that of `message_delta` counts. Source: Anthropic API reference,
"Streaming messages"; the accumulator of anthropic-sdk-python.
"""

import msgspec

from backends.errors import Failed
from backends.types import Delta, FinishReason, ToolCallDelta, Usage
from gateway.anthropic_errors import anthropic_body
from gateway.errors import ApiError
from gateway.schema.messages_api_answer import MessageAnswer, MessageUsage
from gateway.translate.messages_api_answer import to_message_usage, to_stop_reason

_encode = msgspec.json.Encoder().encode

_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_END = b"}}\n\n"
_THINKING = b'{"type":"thinking","thinking":"","signature":""}'
_TEXT = b'{"type":"text","text":""}'


class MessagesEnding:
    """With nothing behind `message_stop` or behind an error event."""

    done = b""

    def error(self, error: ApiError) -> bytes:
        """The event for what broke after the stream had begun. The response's headers carry the request id."""
        return b"event: error\ndata: " + anthropic_body(error, "") + b"\n\n"


class MessageEvents(MessagesEnding):
    """Encodes one stream; remembers which content block is open."""

    def __init__(self, message_id: str, model: str) -> None:
        usage = MessageUsage(input_tokens=0, output_tokens=0)
        message = MessageAnswer(id=message_id, model=model, content=[], stop_reason=None, stop_sequence=None, usage=usage)
        # What must come before the first event; nothing once it was sent.
        self._beginning = b'event: message_start\ndata: {"type":"message_start","message":' + _encode(message) + b"}\n\n"
        self._index = -1
        # What is open: b"text", b"thinking", the index of a call, or nothing.
        self._open: bytes | int | None = None
        self._delta_head = b""
        self._finish: FinishReason | None = None
        self._stop: str | None = None

    def encode(self, delta: Delta) -> bytes:
        """The events of one delta; empty when it shows nothing.

        Raises:
            Failed: the backend mixes up its tool calls, or gives usage before it finished.
        """
        if delta.text and self._open == b"text" and delta.finish is None and not delta.tool_calls and not delta.reasoning:
            return self._delta_head + _encode(delta.text) + _END
        events: list[bytes] = []
        if delta.reasoning:
            events += self._piece(b"thinking", _THINKING, b'{"type":"thinking_delta","thinking":', delta.reasoning)
        if delta.text:
            events += self._piece(b"text", _TEXT, b'{"type":"text_delta","text":', delta.text)
        for call in delta.tool_calls:
            events += self._call(call)
        if delta.finish is not None:
            self._finish, self._stop = delta.finish, delta.stop
        if delta.usage is not None:
            events += self._ending(delta.usage)
        if not events:
            return b""
        beginning, self._beginning = self._beginning, b""
        return beginning + b"".join(events)

    def _piece(self, kind: bytes, block: bytes, delta: bytes, text: str) -> list[bytes]:
        events = [] if self._open == kind else self._start(kind, block, delta)
        return [*events, self._delta_head + _encode(text) + _END]

    def _call(self, call: ToolCallDelta) -> list[bytes]:
        events: list[bytes] = []
        if call.id is not None:
            block = _encode({"type": "tool_use", "id": call.id, "name": call.name or "", "input": {}})
            events = self._start(call.index, block, b'{"type":"input_json_delta","partial_json":')
        elif self._open != call.index:
            raise Failed("The backend went on with a tool call that was not the last one it began.")
        if call.arguments:
            events.append(self._delta_head + _encode(call.arguments) + _END)
        return events

    def _start(self, kind: bytes | int, block: bytes, delta: bytes) -> list[bytes]:
        """Close what is open, open a block, and prepare the head of its deltas."""
        events = self._close()
        self._index += 1
        self._open = kind
        self._delta_head = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":' % self._index + delta
        )
        head = b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":' % self._index
        return [*events, head + block + b"}\n\n", *([] if self._index else [_PING])]

    def _close(self) -> list[bytes]:
        if self._open is None:
            return []
        self._open = None
        return [b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % self._index]

    def _ending(self, usage: Usage) -> list[bytes]:
        if self._finish is None:
            raise Failed("The backend ended its answer without finishing it.")
        reason, stop = to_stop_reason(self._finish, self._stop)
        delta = {"stop_reason": reason, "stop_sequence": stop}
        event = {"type": "message_delta", "delta": delta, "usage": to_message_usage(usage)}
        return [*self._close(), b"event: message_delta\ndata: " + _encode(event) + b"\n\n", _STOP]
