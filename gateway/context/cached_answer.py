"""The one form in which a complete answer is kept: the JSON body of the response without streaming.

Everything else is made from it: the same body under a new id, or the events of a stream (`gateway.context.replay`). Streamed
answers come into this form by `gateway.context.assemble`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

Endpoint = Literal["chat", "completions", "embeddings"]


class CachedAnswer(Struct, frozen=True, array_like=True):
    """A complete answer. `body` is JSON; `stored_at` is in Unix seconds."""

    endpoint: Endpoint
    body: bytes
    stored_at: float

    def age_s(self, now: float) -> int:
        """Whole seconds since it was stored, as the header `age` has them."""
        return max(0, int(now - self.stored_at))


class _Function(Struct, frozen=True):
    arguments: str


class _ToolCall(Struct, frozen=True):
    function: _Function | None = None


class _Message(Struct, frozen=True):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _ChatChoice(Struct, frozen=True):
    index: int
    message: _Message
    finish_reason: str


class _CompletionChoice(Struct, frozen=True):
    index: int
    text: str
    finish_reason: str


class _Chat(Struct, frozen=True):
    choices: Annotated[list[_ChatChoice], Meta(min_length=1)]
    usage: dict[str, Raw]


class _Completion(Struct, frozen=True):
    choices: Annotated[list[_CompletionChoice], Meta(min_length=1)]
    usage: dict[str, Raw]


class _Embeddings(Struct, frozen=True):
    data: Annotated[list[Raw], Meta(min_length=1)]
    usage: dict[str, Raw]


_everything = msgspec.json.Decoder()
_DECODERS: dict[Endpoint, msgspec.json.Decoder[Any]] = {
    "chat": msgspec.json.Decoder(_Chat),
    "completions": msgspec.json.Decoder(_Completion),
    "embeddings": msgspec.json.Decoder(_Embeddings),
}


def is_complete(endpoint: Endpoint, body: bytes) -> bool:
    """Whether a body is a whole answer that can be given again: every choice has ended, and the usage is known."""
    try:
        _DECODERS[endpoint].decode(body)
        if endpoint != "embeddings":
            # What nobody looked at yet, such as half a surrogate pair in an unknown field, must not fail in a replay.
            _everything.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
