"""The answers of POST /v1/messages and /v1/messages/count_tokens. Events of a stream are built from bytes
(`gateway.translate.messages_api_events`)."""

from typing import Literal

from msgspec import Raw, Struct

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class ThinkingAnswer(Struct, frozen=True, tag_field="type", tag="thinking"):
    """What the model wrote for itself. The signature is empty: nothing here checks it when it comes back."""

    thinking: str
    signature: str = ""


class TextAnswer(Struct, frozen=True, tag_field="type", tag="text"):
    """Text of the answer."""

    text: str


class ToolUseAnswer(Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A finished call; `input` is a JSON object."""

    id: str
    name: str
    input: Raw


AnswerBlock = ThinkingAnswer | TextAnswer | ToolUseAnswer


class MessageUsage(Struct, frozen=True, kw_only=True):
    """Tokens of the request. Three numbers add up to the prompt: those computed, those written to a cache, those found there.

    Caches are written without being asked here, and nothing is charged for it, so `cache_creation_input_tokens` is always 0.
    """

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int


class MessageAnswer(Struct, frozen=True, kw_only=True):
    """The whole answer. Before it is finished, in the first event of a stream, `stop_reason` is null."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(Struct, frozen=True):
    """How long a prompt is."""

    input_tokens: int
