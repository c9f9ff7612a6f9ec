"""A kept answer, given again: as a body, or as the events of a stream that puts the same body together.

Only `id` and `created` are new. Fields that are unknown here stay: those of a message become deltas, those of a choice stand in
its last chunk, those of the whole answer in the first chunk.

Source: OpenAI API reference, "Streaming"; the accumulating helpers of openai-python and openai-node.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from gateway.context.cached_answer import CachedAnswer

PIECE_CHARS = 256
"""The most text in one chunk of a replayed stream."""

DONE = b"data: [DONE]\n\n"

Fields = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_to_object = msgspec.json.Decoder(dict[str, Raw]).decode
_to_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode

_IN_EVERY_CHUNK = ("model", "system_fingerprint", "service_tier")
_IN_NO_CHUNK = frozenset({"id", "object", "created", "choices", "usage"})
_TEXTS = ("content", "refusal")
_KNOWN_IN_MESSAGE = frozenset({"role", "tool_calls", *_TEXTS})
_KNOWN_IN_CHOICE = frozenset({"index", "message", "text", "logprobs", "finish_reason"})


def replay_json(answer: CachedAnswer, id: str, created: int) -> bytes:
    """Encode the body again.

    Args:
        id: stands in for the old one; embeddings have none and get none.
        created: Unix seconds, likewise.
    """
    fields: Fields = dict(_to_object(answer.body))
    if "id" not in fields:
        return answer.body
    return _encode(fields | {"id": id, "created": created})


def replay_stream(answer: CachedAnswer, id: str, created: int, include_usage: bool) -> list[bytes]:
    """Encode the events of a stream, `[DONE]` included.

    Args:
        include_usage: end with a usage chunk, and put `"usage": null` into all others.

    Raises:
        ValueError: there is no stream of embeddings.
    """
    if answer.endpoint == "embeddings":
        raise ValueError("embeddings are not streamed")
    body = _to_object(answer.body)
    is_chat = answer.endpoint == "chat"
    stamp = {"id": id, "object": "chat.completion.chunk" if is_chat else "text_completion", "created": created}
    chunks = _Chunks(body, stamp, include_usage=include_usage)
    for choice in _to_objects(body["choices"]):
        rest = {name: value for name, value in choice.items() if name not in _KNOWN_IN_CHOICE}
        for fields in _chat_choice(choice) if is_chat else _completion_choice(choice):
            chunks.add(choice["index"], fields)
        last: Fields = {"delta": {}} if is_chat else {"text": ""}
        chunks.add(choice["index"], {**last, "logprobs": None, "finish_reason": choice["finish_reason"], **rest})
    return chunks.finish(body["usage"])


class _Chunks:
    """Puts the fields of the whole answer around those of one choice."""

    def __init__(self, body: Mapping[str, Raw], stamp: Fields, *, include_usage: bool) -> None:
        self._common = stamp | {name: body[name] for name in _IN_EVERY_CHUNK if name in body}
        self._once = {name: body[name] for name in body if name not in _IN_NO_CHUNK and name not in self._common}
        self._include_usage = include_usage
        self._no_usage: Fields = {"usage": None} if include_usage else {}
        self._events: list[bytes] = []

    def add(self, index: Raw, fields: Fields) -> None:
        self._write([{"index": index, **fields}], self._no_usage)

    def finish(self, usage: Raw) -> list[bytes]:
        if self._include_usage:
            self._write([], {"usage": usage})
        return [*self._events, DONE]

    def _write(self, choices: list[Fields], usage: Fields) -> None:
        chunk = {**self._common, **self._once, "choices": choices, **usage}
        self._events.append(b"data: " + _encode(chunk) + b"\n\n")
        self._once = {}


def _chat_choice(choice: Mapping[str, Raw]) -> Iterator[Fields]:
    """The chunks before the last: role, what stands beside the content, content, tool calls."""
    message = _to_object(choice["message"])
    yield _delta({"role": "assistant", "content": "", "refusal": None})
    for name, value in message.items():
        if name not in _KNOWN_IN_MESSAGE:
            yield from _field(name, _decode(value), value)
    texts = {name: _decode(message[name]) for name in _TEXTS if name in message}
    logprobs = choice.get("logprobs")
    if logprobs is not None and _decode(logprobs) is not None:
        # Which token wrote which letters is not always told, so text and log probabilities stay together.
        yield {"delta": {name: text for name, text in texts.items() if text}, "logprobs": logprobs, "finish_reason": None}
    else:
        for name, text in texts.items():
            yield from _field(name, text, message[name])
    calls = _to_objects(message["tool_calls"]) if _decode(message.get("tool_calls", b"null")) else []
    for index, call in enumerate(calls):
        yield from _tool_call(index, call)


def _completion_choice(choice: Mapping[str, Raw]) -> Iterator[Fields]:
    text, logprobs = _decode(choice["text"]), choice.get("logprobs")
    if logprobs is not None and _decode(logprobs) is not None:
        yield {"text": text, "logprobs": logprobs, "finish_reason": None}
        return
    for piece in _pieces(text):
        yield {"text": piece, "logprobs": None, "finish_reason": None}


def _field(name: str, value: object, raw: Raw) -> Iterator[Fields]:
    """A field of a message: text in pieces, null not at all, anything else at once."""
    if isinstance(value, str):
        for piece in _pieces(value):
            yield _delta({name: piece})
    elif value is not None:
        yield _delta({name: raw})


def _tool_call(index: int, call: Mapping[str, Raw]) -> Iterator[Fields]:
    """First what names the call, then its arguments. A call that is no function has no arguments and comes at once."""
    if "function" not in call:
        yield _delta({"tool_calls": [{"index": index, **call}]})
        return
    function = _to_object(call["function"])
    head = {"index": index, **call, "function": {**function, "arguments": ""}}
    yield _delta({"tool_calls": [head]})
    for piece in _pieces(_decode(function["arguments"])):
        yield _delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def _delta(delta: Fields) -> Fields:
    return {"delta": delta, "logprobs": None, "finish_reason": None}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))
