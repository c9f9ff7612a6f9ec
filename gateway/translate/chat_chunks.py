"""Deltas to the chunks of a chat stream, in the order that both official SDKs demand.

Per choice: one chunk with the role and nothing else, content and tool-call chunks, one chunk with the finish reason and an
empty delta. Then, when asked for, one usage chunk with `choices: []`. Source: OpenAI API reference, "Streaming"; the helpers
of openai-python and openai-node (`.stream()`), which fail on a repeated role, a missing index or a missing finish.
"""

from backends.types import Delta, ToolCallDelta
from gateway.translate.chunk_frame import ChunkFrame, encode
from gateway.translate.ending import OpenAiEnding
from gateway.translate.logprobs import to_chat_logprobs
from gateway.translate.stamp import Stamp

_ROLE = b'"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}'
_OPEN_END = b'},"logprobs":null,"finish_reason":null}'


class ChatChunks(OpenAiEnding):
    """Encodes one stream; remembers which choices have had their role."""

    def __init__(self, stamp: Stamp, size: int, *, include_usage: bool) -> None:
        self._frame = ChunkFrame(stamp, "chat.completion.chunk", size, include_usage=include_usage)
        self._content_heads = [head + b'"delta":{"content":' for head in self._frame.heads]
        self._content_tail = _OPEN_END + self._frame.tail
        self._unopened = set(range(size))

    def encode(self, delta: Delta) -> bytes:
        """The events of one delta; empty when it shows nothing."""
        index = delta.index
        if delta.text and not delta.logprobs and index not in self._unopened and delta.finish is None and not delta.tool_calls:
            return self._content_heads[index] + encode(delta.text) + self._content_tail
        events: list[bytes] = []
        if delta.text or delta.logprobs:
            events.append(self._content(delta))
        events += [self._tool_call(index, call) for call in delta.tool_calls]
        if delta.finish is not None:
            head = self._frame.heads[index] + b'"delta":{},"logprobs":null,"finish_reason":'
            events.append(head + encode(delta.finish) + b"}" + self._frame.tail)
        if events and index in self._unopened:
            events.insert(0, self._role(index))
        if delta.usage is not None:
            events.append(self._frame.usage(delta.usage))
        return b"".join(events)

    def _role(self, index: int) -> bytes:
        self._unopened.discard(index)
        return self._frame.heads[index] + _ROLE + self._frame.tail

    def _content(self, delta: Delta) -> bytes:
        head = self._content_heads[delta.index] + encode(delta.text)
        if not delta.logprobs:
            return head + self._content_tail
        logprobs = encode(to_chat_logprobs(delta.logprobs))
        return head + b'},"logprobs":' + logprobs + b',"finish_reason":null}' + self._frame.tail

    def _tool_call(self, index: int, call: ToolCallDelta) -> bytes:
        piece: dict[str, object] = {"index": call.index}
        if call.id is not None:
            piece |= {"id": call.id, "type": "function"}
            piece["function"] = {"name": call.name or "", "arguments": call.arguments}
        else:
            piece["function"] = {"arguments": call.arguments}
        return self._frame.heads[index] + b'"delta":{"tool_calls":[' + encode(piece) + b"]" + self._content_tail
