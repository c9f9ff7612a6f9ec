"""What the figures and words of an answer mean in our vocabulary: usage, finish reasons, which tool call a piece belongs to."""

from typing import Any

from backends.remote.json_fields import count
from backends.types import FinishReason, Usage

_FINISHES: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_length": "length",
}


def read_finish(value: Any) -> FinishReason | None:
    """A finish reason; servers' own words that end an answer in the ordinary way become `stop`, no words None."""
    if not isinstance(value, str) or not value:
        return None
    return _FINISHES.get(value, "stop")


def read_usage(value: Any) -> Usage | None:
    """The usage object of chat, completions and embeddings, or of responses and rerank; None when it is none."""
    if not isinstance(value, dict):
        return None
    prompt = value.get("prompt_tokens", value.get("input_tokens"))
    if prompt is None:
        prompt = value.get("total_tokens")
    details = value.get("prompt_tokens_details", value.get("input_tokens_details"))
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    completion = value.get("completion_tokens", value.get("output_tokens"))
    return Usage(count(prompt), count(completion), count(cached))


class CallIndexes:
    """Numbers the tool calls of one choice from 0, whatever the upstream does with `index`.

    Known ways to get it wrong: none at all, always 0, and beginning with 1.
    """

    def __init__(self) -> None:
        self._calls: dict[object, tuple[int, str]] = {}
        self._count = 0
        self._last: object = None

    def number(self, index: Any, call_id: Any) -> int:
        """The number of the call that a piece with this `index` and `id` belongs to; most pieces have no id."""
        key: object = index if isinstance(index, int) else None
        name = call_id if isinstance(call_id, str) else ""
        if key is None and not name:
            key = self._last
        known = self._calls.get(key)
        if known is None or (name and known[1] and name != known[1]):
            known = (self._count, name)
            self._count += 1
        self._calls[key] = known
        self._last = key
        return known[0]
