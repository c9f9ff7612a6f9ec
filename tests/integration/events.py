"""What upstreams send in these tests, and what is read from the bytes that a client gets."""

import json
from typing import Any

from tests.upstream import Script, event, json_answer

DONE = b"data: [DONE]\n\n"
TEXT = "é漢🧑‍🚀 ok"
MODELS = json_answer({"object": "list", "data": [{"id": "theirs", "object": "model"}]})
USAGE_FIELDS = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> bytes:
    """One event of a chat, as servers send it."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "theirs", "choices": [choice]}
    return event(head | fields)


def piece(text: str) -> bytes:
    return chunk({"content": text})


STOP = chunk({}, "stop")
USAGE = chunk({}, choices=[], usage=USAGE_FIELDS)


def completion(text: str = "yes", **fields: Any) -> dict[str, Any]:
    """A whole answer."""
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "theirs", "choices": choices}
    return head | {"usage": USAGE_FIELDS} | fields


def whole(text: str = "yes") -> Script:
    return json_answer(completion(text))


def data_of(body: bytes) -> list[str]:
    """The data of each event, `[DONE]` included. Every line must be data or a comment."""
    lines = [line for line in body.decode().split("\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines), lines
    return [line.removeprefix("data: ") for line in lines]


def chunks_of(body: bytes) -> list[dict[str, Any]]:
    """The events before `[DONE]`, which must be the last."""
    *events, end = data_of(body)
    assert end == "[DONE]", body
    return [json.loads(data) for data in events]


def text_of(body: bytes) -> str:
    """What the answer of choice 0 says."""
    deltas = [event["choices"][0]["delta"] for event in chunks_of(body) if event.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas)
