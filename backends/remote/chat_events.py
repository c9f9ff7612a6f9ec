"""The events of chat and legacy completions: what they mean, and what is mended in them.

Mended is what breaks the official SDKs: a usage chunk without `choices`, tool calls that are not numbered from 0, a
`finish_reason` of "". Everything else passes as it came, unknown fields too. Most events of a stream hold a piece of text and
nothing else: those are recognised by what they do not contain, and pass together, as one piece, without being decoded.
"""

from typing import Any

from backends.remote.errors import from_event, protocol_error
from backends.remote.json_fields import count, dicts, encode, read_object
from backends.remote.meaning import CallIndexes, read_finish, read_usage
from backends.remote.sse import DONE, Event
from backends.remote.stream_rewriter import StreamRewriter

# What a plain piece of text has nothing of. Python's json module writes a space behind the colon, everybody else none.
_MARKS = (
    b'"finish_reason":"',
    b'"finish_reason": "',
    b'"usage":{',
    b'"usage": {',
    b'"tool_calls":[',
    b'"tool_calls": [',
    b'"error":',
    b"[DONE]",
)
_CONTENT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio")


class ChatEvents(StreamRewriter):
    """Passes chunks on.

    Args:
        keep_usage: whether the client asked for the usage chunk; otherwise it is read and left out.
    """

    def __init__(self, public_model: str, max_event_bytes: int, *, keep_usage: bool) -> None:
        super().__init__(public_model, max_event_bytes)
        self._keep_usage = keep_usage
        self._calls: dict[int, CallIndexes] = {}

    def push(self, piece: bytes) -> bytes:
        """Take bytes of the upstream; return what the client is to see."""
        start = 0
        shown: list[bytes] = []
        while not self.saw_output and not self.ended and start < len(piece):
            end = piece.find(b"\n\n", start) + 2
            if end == 1:
                end = len(piece)
            shown.append(super().push(piece[start:end]))
            start = end
        if start:
            piece = piece[start:]
        if piece and not self.ended:
            plain = self._plain(piece)
            shown.append(self._model.put(plain))
            shown.append(super().push(piece[len(plain) :]))
        return b"".join(shown)

    def _plain(self, piece: bytes) -> bytes:
        """The events at the beginning of a piece that hold text and nothing else."""
        end = len(piece)
        for mark in _MARKS:
            found = piece.find(mark, 0, end)
            if found >= 0:
                end = found
        plain = self._splitter.plain(piece[: piece.rfind(b"\n\n", 0, end) + 2])
        self.output_events += plain.count(b"\n\n")
        return plain

    def closing(self) -> bytes:
        """An error event, should it have broken, and `[DONE]`."""
        if self.error is None:
            return DONE
        body = {"message": self.error.message, "type": "upstream_error", "param": self.error.param, "code": self.error.code}
        return b"data: " + encode({"error": body}) + b"\n\n" + DONE

    def _ended_early(self) -> None:
        # Some servers forget [DONE]; without a finish reason either, the answer was cut off.
        self.ended = True
        if self.finish is None and self.saw_output:
            self.fail(protocol_error("The upstream server ended its answer without a finish reason."))

    def _rewrite(self, event: Event) -> bytes:
        data = event.data
        if data.startswith(b"[DONE]"):
            self.ended = True
            return b""
        chunk = read_object(data, "event")
        if chunk.get("error") or event.name == b"error":
            raise from_event(chunk.get("error") or chunk)
        usage = read_usage(chunk.get("usage"))
        choices = chunk.get("choices")
        if usage is not None:
            self.usage = usage
            if not choices and not self._keep_usage:
                return b""
        # A chunk may span lines, of which an event of one line knows nothing.
        changed = b"\n" in data
        if not isinstance(choices, list):
            chunk["choices"] = []
            changed = True
        has_content = ends = False
        for choice in dicts(choices):
            changed |= self._mend(choice)
            has_content |= _has_content(choice)
            if finish := read_finish(choice.get("finish_reason")):
                self.finish = finish
                ends = True
        self.saw_output |= has_content or ends
        # Counted as in `_plain`, which cannot tell an empty event from one with text.
        if self.saw_output and (has_content or not (ends or usage)):
            self.output_events += 1
        return b"data: " + self._model.put(encode(chunk) if changed else data) + b"\n\n"

    def _mend(self, choice: dict[str, Any]) -> bool:
        """Mend a choice in place; say whether anything was wrong."""
        changed = False
        if choice.get("finish_reason") == "":
            choice["finish_reason"] = None
            changed = True
        delta = choice.get("delta")
        for call in dicts(delta.get("tool_calls")) if isinstance(delta, dict) else ():
            indexes = self._calls.setdefault(count(choice.get("index")), CallIndexes())
            number = indexes.number(call.get("index"), call.get("id"))
            if call.get("index") != number:
                call["index"] = number
                changed = True
        return changed


def _has_content(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return bool(choice.get("text")) or (isinstance(delta, dict) and any(delta.get(name) for name in _CONTENT_FIELDS))
