"""Answers with everything that a server may put into them, and what the OpenAI client makes of a stream."""

from collections.abc import Iterable
from typing import Any

import msgspec
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

USAGE = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21, "prompt_tokens_details": {"cached_tokens": 4}}
TOP = {"system_fingerprint": "fp_1", "service_tier": "default", "kv_transfer": {"ms": 3}}


def token(text: str) -> dict[str, Any]:
    piece = list(text.encode())
    return {"token": text, "bytes": piece, "logprob": -0.5, "top_logprobs": [{"token": text, "bytes": piece, "logprob": -0.5}]}


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def choice(index: int, message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "refusal": None} | message
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish} | more


def chat(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"id": "chatcmpl-old", "object": "chat.completion", "created": 1, "model": "m"}
    return head | TOP | {"choices": list(choices), "usage": USAGE} | more


CHATS: dict[str, dict[str, Any]] = {
    "text": chat(choice(0, {"content": "Hello, 漢字 🧑‍🚀\u2028!"})),
    "long text": chat(choice(0, {"content": "0123456789é🧑‍🚀" * 200}, "length")),
    "empty text": chat(choice(0, {"content": ""})),
    "three choices": chat(*(choice(index, {"content": f"answer {index}" * 50}) for index in range(3))),
    "tools": chat(
        choice(0, {"tool_calls": [call("a", "look", '{"q":"%s"}' % ("x" * 700)), call("b", "now", "{}")]}, "tool_calls")
    ),
    "text and tools": chat(choice(0, {"content": "Let me see.", "tool_calls": [call("a", "look", "{}")]}, "tool_calls")),
    "logprobs": chat(
        choice(0, {"content": "Hi you"}, logprobs={"content": [token("Hi"), token(" you")], "refusal": None}),
        choice(1, {"content": "Ho"}, logprobs={"content": [token("Ho")], "refusal": None}),
    ),
    "refusal": chat(choice(0, {"refusal": "I would rather not. " * 40})),
    "unknown fields": chat(
        choice(
            0,
            {
                "content": "4",
                "reasoning_content": "2 + 2 " * 100,
                "annotations": [{"type": "url", "url": "u"}],
                "extra": {"a": 1},
            },
            stop_reason="</s>",
            token_ids=[1, 2],
        )
    ),
}


def events_of(data: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream, which must end with `[DONE]` and hold nothing but data."""
    events = data.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    return [msgspec.json.decode(event.removeprefix(b"data: ")) for event in events[:-2]]


def client_sees(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What the helper of the OpenAI client holds at the end of a stream."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.current_completion_snapshot.to_dict(mode="json")


def without_nulls(value: Any) -> Any:
    """A value in which absent and null are the same."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None and name != "parsed"}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value
