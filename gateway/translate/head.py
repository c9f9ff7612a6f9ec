"""The few fields of a request that decide how it is served, read without decoding the rest.

A remote upstream gets the body as the client wrote it, so what the gateway does not know passes through unharmed. Types are
checked here only for the fields that are read; whoever computes the answer checks its own.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from gateway.schema.scalars import ModelName

BYTES_PER_TOKEN = 4
"""For estimates before anything was tokenised: English text has 4 to 5 bytes per token."""

_BLOCK_BYTES = 512
_MAX_BLOCKS = 64
_MODEL_KEY = b'"model"'
_ASCII_ESCAPE = b"\\u00"
_LETTER_ESCAPES = (b"\\u004", b"\\u006")
"""How escapes of the letters in `model` begin. Hardly any client escapes ASCII letters."""


class StreamOptions(Struct, frozen=True):
    """What is looked at; the rest passes through."""

    include_usage: bool | None = None


class Head(Struct, frozen=True, kw_only=True):
    """Of a chat, completion, embedding or rerank request."""

    model: ModelName | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    system: Raw = Raw()
    messages: Raw = Raw()
    prompt: Raw = Raw()
    input: Raw = Raw()

    @property
    def content(self) -> Raw:
        """Whichever field holds the prompt, as JSON."""
        return self.messages or self.prompt or self.input

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options is not None and self.stream_options.include_usage)

    @property
    def answer_tokens(self) -> int:
        """The most that all choices together may take; 0 where the client set no bound."""
        return (self.max_completion_tokens or self.max_tokens or 0) * (self.n or 1)

    @property
    def prompt_tokens(self) -> int:
        """An estimate."""
        return (len(memoryview(self.content)) + len(memoryview(self.system))) // BYTES_PER_TOKEN + 1


def prefix_hashes(content: Raw) -> tuple[int, ...]:
    """Hash the leading blocks of a prompt, each hash over everything before it too: the longest prefix comes last.

    Blocks have 512 bytes of the JSON text, of which at most the first 64 count. Equal within one process, for routing only.
    """
    text, hashes, value = bytes(memoryview(content)), [], 0
    for start in range(0, min(len(text), _MAX_BLOCKS * _BLOCK_BYTES), _BLOCK_BYTES):
        value = hash((value, text[start : start + _BLOCK_BYTES]))
        hashes.append(value)
    return tuple(hashes)


def model_span(body: bytes, model: str) -> tuple[int, int] | None:
    """Where the value of the top-level field `model` stands in a body, quotes included; None when that is not certain.

    Any other object in the body may have a field `model` too, and a look at the bytes cannot tell them apart. A key may also be
    written with escapes (`mod\\u0065l`), or as `Model`, which some servers take for `model`.
    """
    value = msgspec.json.encode(model)
    folded = body.lower()
    key = folded.find(_MODEL_KEY)
    if key < 0 or body[key : key + len(_MODEL_KEY)] != _MODEL_KEY or folded.find(_MODEL_KEY, key + 1) >= 0:
        return None
    if _ASCII_ESCAPE in folded and any(escape in folded for escape in _LETTER_ESCAPES):
        return None
    start = body.find(value, key + len(_MODEL_KEY))
    if start < 0 or body[key + len(_MODEL_KEY) : start].strip(b" \t\r\n") != b":":
        return None
    return start, start + len(value)


def with_model_first(body: bytes, model: str) -> tuple[bytes, tuple[int, int]]:
    """Write a body again with `model` as its first field; every other value keeps its bytes. Returns it and the span.

    A field that differs from `model` only in its case is left out: a server that takes it for `model` would answer with another
    model than the one that was asked for here.
    """
    fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Raw])
    others = {name: raw for name, raw in fields.items() if name.lower() != "model"}
    value = msgspec.json.encode(model)
    start = len(b'{"model":')
    return msgspec.json.encode({"model": Raw(value), **others}), (start, start + len(value))
