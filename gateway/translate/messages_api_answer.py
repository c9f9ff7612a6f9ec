"""Deltas to one message of the Messages API, for clients that want the answer whole."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from backends.errors import Failed
from backends.types import Delta, FinishReason, Usage
from gateway.schema.messages_api_answer import (
    AnswerBlock,
    MessageAnswer,
    MessageUsage,
    StopReason,
    TextAnswer,
    ThinkingAnswer,
    ToolUseAnswer,
)

INVALID_JSON = "INVALID_JSON"
"""The one key of an `input` that stands for text which is no JSON object; the name that Anthropic's guide proposes."""

_STOP_REASONS: dict[FinishReason, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_object = msgspec.json.Decoder(dict[str, Any])


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


class Gathered:
    """The answer while it grows. A request has one choice here, so the index of a delta does not matter.

    `usage` and `finish` are those of the last delta that had them.
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self.finish: FinishReason | None = None
        self._stop: str | None = None
        self._thoughts: list[str] = []
        self._texts: list[str] = []
        self._calls: dict[int, _Call] = {}

    def add(self, delta: Delta) -> None:
        """Take the next delta in."""
        if delta.reasoning:
            self._thoughts.append(delta.reasoning)
        if delta.text:
            self._texts.append(delta.text)
        for piece in delta.tool_calls:
            call = self._calls.setdefault(piece.index, _Call(piece.id or "", piece.name or ""))
            call.arguments.append(piece.arguments)
        if delta.finish is not None:
            self.finish, self._stop = delta.finish, delta.stop
        if delta.usage is not None:
            self.usage = delta.usage

    def encode(self, message_id: str, model: str) -> bytes:
        """Encode the message.

        Raises:
            Failed: the backend ended its answer without finishing it.
        """
        if self.finish is None:
            raise Failed("The backend ended its answer without finishing it.")
        reason, stop = to_stop_reason(self.finish, self._stop)
        return msgspec.json.encode(
            MessageAnswer(
                id=message_id,
                model=model,
                content=self._blocks(),
                stop_reason=reason,
                stop_sequence=stop,
                usage=to_message_usage(self.usage),
            )
        )

    def _blocks(self) -> list[AnswerBlock]:
        blocks: list[AnswerBlock] = []
        if self._thoughts:
            blocks.append(ThinkingAnswer("".join(self._thoughts)))
        if self._texts:
            blocks.append(TextAnswer("".join(self._texts)))
        calls = (call for _, call in sorted(self._calls.items()))
        return blocks + [ToolUseAnswer(call.id, call.name, to_input("".join(call.arguments))) for call in calls]


def to_stop_reason(finish: FinishReason, stop: str | None) -> tuple[StopReason, str | None]:
    """The reason and the stop sequence of an answer; a backend that cannot tell which one matched ends its turn."""
    if finish == "stop" and stop is not None:
        return "stop_sequence", stop
    return _STOP_REASONS[finish], None


def to_input(arguments: str) -> msgspec.Raw:
    """The input of a call from the JSON text that the model wrote, untouched where it is an object.

    Text that is none (models write such text, and an exhausted budget cuts it) becomes the only value of an object, so that
    nothing is lost and nobody takes it for what was asked for.
    """
    if not arguments:
        return msgspec.Raw(b"{}")
    try:
        _object.decode(arguments)
    except (msgspec.MsgspecError, RecursionError):
        return msgspec.Raw(msgspec.json.encode({INVALID_JSON: arguments}))
    return msgspec.Raw(arguments.encode())


def to_message_usage(usage: Usage) -> MessageUsage:
    """The usage object of a message."""
    return MessageUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )
