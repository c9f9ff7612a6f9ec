"""The answer of POST /v1/chat/completions. Chunks of a stream are built from bytes (`gateway.translate.chat_chunks`)."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from gateway.schema.common import Usage


class TopLogprob(Struct, frozen=True):
    """A token that could have stood there."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(Struct, frozen=True):
    """A token of the answer. `token` may hold U+FFFD where it is part of a character; `bytes` is exact."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    """Log probabilities of a choice."""

    content: list[ChatTokenLogprob]
    refusal: None = None


class AnsweredFunction(Struct, frozen=True):
    """`arguments` is JSON text."""

    name: str
    arguments: str


class AnsweredToolCall(Struct, frozen=True):
    """A finished call."""

    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnsweredMessage(Struct, frozen=True):
    """The model's turn. `tool_calls` is left out when there are none: an empty list makes some clients loop."""

    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    tool_calls: list[AnsweredToolCall] | UnsetType = UNSET


class ChatChoice(Struct, frozen=True):
    """One answer."""

    index: int
    message: AnsweredMessage
    logprobs: ChatLogprobs | None
    finish_reason: str


class ChatCompletion(Struct, frozen=True):
    """The whole answer."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
