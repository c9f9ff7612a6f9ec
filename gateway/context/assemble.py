"""Puts a stream of chunks together to the body that the same request would have had without streaming.

It listens to the bytes that go to the client, so it never fails loudly: what it cannot put together is simply no whole answer.
"""

from typing import Any, Literal

import msgspec

from backends.types import Usage
from gateway.context.event_lines import EventLines
from gateway.context.merge import merge, overwrite, settled

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

_STAMP = ("id", "object", "created", "model")
_OF_CHOICE = frozenset({"index", "delta", "text", "logprobs", "finish_reason"})

# Chunks are what an upstream sends: instead of checking each field of each, let what is wrong fail.
_MALFORMED = (msgspec.MsgspecError, RecursionError, ValueError, TypeError, LookupError, AttributeError, OverflowError)

Fields = dict[str, Any]


class Assembler:
    """One stream of chat or completion chunks.

    Args:
        choices: how many the answer must have.
        max_bytes: what may be held: characters, and a little for every value. A stream with more is given up.
    """

    def __init__(self, endpoint: Literal["chat", "completions"], *, choices: int, max_bytes: int) -> None:
        self._is_chat = endpoint == "chat"
        self._size = choices
        self._left = max_bytes
        self._lines = EventLines(max_bytes)
        self._top: Fields = {}
        self._choices: dict[int, Fields] = {}
        self._usage: Fields | None = None
        self._is_done = False
        self._has_failed = False

    def feed(self, received: bytes) -> None:
        """Take in the next bytes, cut anywhere. Never raises."""
        if self._has_failed:
            return
        try:
            for data in self._lines.feed(received):
                self._take(data)
        except _MALFORMED:
            self._give_up()

    def finish(self, usage: Usage | None = None) -> bytes | None:
        """The body, once; None when the stream broke, was too long, or left a choice or the usage open.

        Args:
            usage: where the stream has none because the client did not ask for it.
        """
        wire_usage = self._usage or (_to_wire(usage) if usage is not None else None)
        is_whole = self._is_done and self._choices.keys() == set(range(self._size))
        if self._has_failed or not is_whole or wire_usage is None:
            return None
        try:
            return self._body(wire_usage)
        except _MALFORMED:
            return None

    def _body(self, usage: Fields) -> bytes:
        choices = [self._choice(index, fields) for index, fields in sorted(self._choices.items())]
        self._top["object"] = "chat.completion" if self._is_chat else "text_completion"
        stamp = {name: self._top.pop(name, None) for name in _STAMP}
        return _encode({**stamp, **self._top, "choices": choices, "usage": usage})

    def _give_up(self) -> None:
        self._has_failed = True
        self._choices.clear()
        self._top.clear()
        self._lines = EventLines(0)

    def _take(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._is_done = True
            return
        chunk = _decode(data)
        if chunk.get("error") is not None:
            raise ValueError("the answer broke")
        for choice in chunk.pop("choices", None) or ():
            self._take_choice(choice)
        self._usage = chunk.pop("usage", None) or self._usage
        self._left -= overwrite(self._top, chunk)
        if self._left < 0:
            raise ValueError("more than may be held")

    def _take_choice(self, choice: Fields) -> None:
        index: int = choice["index"]
        if not 0 <= index < self._size:
            raise ValueError("a choice that was not asked for")
        state = self._choices.setdefault(index, {"grown": {}, "rest": {}})
        piece = (choice.get("delta") or {}) if self._is_chat else {"text": choice.get("text") or ""}
        self._left -= merge(state["grown"], piece)
        if choice.get("logprobs"):
            state["logprobs"] = state.get("logprobs") or {}
            self._left -= merge(state["logprobs"], choice["logprobs"])
        if choice.get("finish_reason") is not None:
            state["finish_reason"] = choice["finish_reason"]
        self._left -= overwrite(state["rest"], {name: choice[name] for name in choice.keys() - _OF_CHOICE})

    def _choice(self, index: int, state: Fields) -> Fields:
        grown: Fields = settled(state["grown"])
        content = {"message": _message(grown)} if self._is_chat else grown
        ending = {"logprobs": settled(state.get("logprobs")), "finish_reason": state.get("finish_reason")}
        return {"index": index, **content, **ending, **state["rest"]}


def _message(grown: Fields) -> Fields:
    """Deltas that have been added up, as a message: calls lose their numbers, and there is no content where there was none."""
    calls = grown.pop("tool_calls", None) or []
    content = grown.pop("content", None) or (None if calls or grown.get("refusal") else "")
    message: Fields = {"role": grown.pop("role", "assistant"), "content": content, **grown}
    if calls:
        message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    return message


def _to_wire(usage: Usage) -> Fields:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
