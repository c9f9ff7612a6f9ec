"""A kept answer given again is the answer: as a body, and as what the OpenAI client puts together from the stream."""

from typing import Any

import msgspec
import pytest

from gateway.context.cached_answer import CachedAnswer, is_complete
from gateway.context.replay import DONE, PIECE_CHARS, replay_json, replay_stream
from tests.gateway.context.openai_answers import CHATS, USAGE, chat, choice, client_sees, events_of, without_nulls

COMPLETION: dict[str, Any] = {
    "id": "cmpl-old",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "system_fingerprint": "fp_1",
    "choices": [
        {"text": "one two " * 100, "index": 0, "logprobs": None, "finish_reason": "length", "prompt_token_ids": [1]},
        {
            "text": "Hi you",
            "index": 1,
            "logprobs": {"tokens": ["Hi", " you"], "token_logprobs": [-1.0, -2.0], "top_logprobs": None, "text_offset": [0, 2]},
            "finish_reason": "stop",
        },
        {"text": "", "index": 2, "logprobs": None, "finish_reason": "stop"},
    ],
    "usage": USAGE,
}


def kept(body: dict[str, Any], endpoint: Any = "chat") -> CachedAnswer:
    encoded = msgspec.json.encode(body)
    assert is_complete(endpoint, encoded)
    return CachedAnswer(endpoint, encoded, 0.0)


def chunks(body: dict[str, Any], *, include_usage: bool = True) -> list[dict[str, Any]]:
    return events_of(b"".join(replay_stream(kept(body), "chatcmpl-new", 2, include_usage)))


@pytest.mark.parametrize("body", CHATS.values(), ids=CHATS)
def test_a_body_differs_only_in_id_and_time(body: dict[str, Any]) -> None:
    replayed = replay_json(kept(body), "chatcmpl-new", 2)
    assert msgspec.json.decode(replayed) == body | {"id": "chatcmpl-new", "created": 2}
    assert list(msgspec.json.decode(replayed)) == list(body)


@pytest.mark.parametrize("body", CHATS.values(), ids=CHATS)
def test_the_openai_client_sees_the_same_answer_in_the_stream(body: dict[str, Any]) -> None:
    seen = client_sees(chunks(body))
    wanted = without_nulls(body) | {"id": "chatcmpl-new", "created": 2}
    for wanted_choice in wanted["choices"]:
        wanted_choice["message"].setdefault("content", "")
        for name in ("stop_reason", "token_ids"):
            wanted_choice.pop(name, None)
    # The client numbers calls, and looks at unknown fields of a choice in its first chunk only.
    for seen_choice in seen["choices"]:
        for call in seen_choice["message"].get("tool_calls") or ():
            call.pop("index", None)
    assert without_nulls(seen) == wanted


@pytest.mark.parametrize("body", CHATS.values(), ids=CHATS)
def test_a_stream_keeps_the_order_that_clients_demand(body: dict[str, Any]) -> None:
    *events, last = chunks(body)
    assert (last["choices"], last["usage"]) == ([], USAGE)
    assert {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in [*events, last]} == {
        ("chatcmpl-new", "chat.completion.chunk", 2, "m")
    }
    assert all(chunk["usage"] is None and len(chunk["choices"]) == 1 for chunk in events)
    for index in range(len(body["choices"])):
        mine = [chunk["choices"][0] for chunk in events if chunk["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert all("role" not in piece["delta"] for piece in mine[1:])
        assert mine[-1]["delta"] == {}
        assert [piece["finish_reason"] for piece in mine] == [None] * (len(mine) - 1) + [
            body["choices"][index]["finish_reason"]
        ]


def test_usage_comes_only_when_asked_for() -> None:
    events = chunks(CHATS["text"], include_usage=False)
    assert all("usage" not in chunk and chunk["choices"] for chunk in events)


def test_long_texts_come_in_pieces_that_split_no_character() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(CHATS["long text"]) if chunk["choices"]]
    pieces = [delta["content"] for delta in deltas if delta.get("content")]
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= PIECE_CHARS


def test_tool_calls_are_named_once_and_numbered_from_zero() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(CHATS["tools"]) if chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0] * 4 + [1] * 2
    heads = [call for call in calls if "id" in call]
    assert [(call["index"], call["type"], call["function"]) for call in heads] == [
        (0, "function", {"name": "look", "arguments": ""}),
        (1, "function", {"name": "now", "arguments": ""}),
    ]
    assert all(set(call["function"]) == {"arguments"} for call in calls if call not in heads)


def test_unknown_fields_stand_where_servers_put_them() -> None:
    events = chunks(CHATS["unknown fields"])
    assert [chunk.get("kv_transfer") for chunk in events] == [{"ms": 3}] + [None] * (len(events) - 1)
    assert all(chunk["service_tier"] == "default" for chunk in events)
    (last,) = events[-2]["choices"]
    assert (last["finish_reason"], last["stop_reason"], last["token_ids"]) == ("stop", "</s>", [1, 2])


def test_a_call_that_is_no_function_comes_whole() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(chat(choice(0, {"tool_calls": [custom]}, "tool_calls")))[:-1]]
    assert [delta["tool_calls"] for delta in deltas if "tool_calls" in delta] == [[{"index": 0, **custom}]]


def test_numbers_beyond_64_bits_pass_unharmed() -> None:
    body = chat(choice(0, {"content": "x"}))
    encoded = msgspec.json.encode(body)[:-1] + b',"big":123456789012345678901234567890}'
    answer = CachedAnswer("chat", encoded, 0.0)
    assert b'"big":123456789012345678901234567890' in replay_json(answer, "i", 1)
    assert b'"big":123456789012345678901234567890' in b"".join(replay_stream(answer, "i", 1, True))


def test_a_completion_stream_adds_up_to_the_body() -> None:
    events = events_of(b"".join(replay_stream(kept(COMPLETION, "completions"), "cmpl-new", 2, True)))
    assert {(chunk["id"], chunk["object"]) for chunk in events} == {("cmpl-new", "text_completion")}
    for wanted in COMPLETION["choices"]:
        mine = [piece for chunk in events for piece in chunk["choices"] if piece["index"] == wanted["index"]]
        assert "".join(piece["text"] for piece in mine) == wanted["text"]
        assert [piece["logprobs"] for piece in mine if piece["logprobs"]] == [wanted["logprobs"]] * bool(wanted["logprobs"])
        assert [piece["finish_reason"] for piece in mine] == [None] * (len(mine) - 1) + [wanted["finish_reason"]]
        assert mine[-1].get("prompt_token_ids") == wanted.get("prompt_token_ids")
    assert events[-1]["usage"] == USAGE


def test_embeddings_are_given_again_as_they_are_and_never_streamed() -> None:
    body = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": "AAAA"}], "model": "m", "usage": {}}
    answer = kept(body, "embeddings")
    assert replay_json(answer, "i", 1) == answer.body
    with pytest.raises(ValueError, match="not streamed"):
        replay_stream(answer, "i", 1, False)


def test_every_stream_ends_with_done() -> None:
    assert replay_stream(kept(CHATS["text"]), "i", 1, False)[-1] == DONE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"error":{"message":"no"}}',
        b'{"choices":[],"usage":{}}',
        b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":null}],"usage":{}}',
        b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],"usage":null}',
        b'{"choices":[{"index":0,"message":{"content":[]},"finish_reason":"stop"}],"usage":{}}',
        b'{"choices":[{"index":0,"message":{"tool_calls":[{"function":{"arguments":{}}}]},"finish_reason":"stop"}],"usage":{}}',
        b'{"choices":[{"index":0,"message":{"more":"\\ud800"},"finish_reason":"stop"}],"usage":{}}',
        b'{"choices":[{"index":0,"message":{"more":1e999},"finish_reason":"stop"}],"usage":{}}',
        b'{"choices":[{"index":0,"message":{"more":"\xff"},"finish_reason":"stop"}],"usage":{}}',
        b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{}}',
    ],
)
def test_what_is_no_whole_answer_is_not_kept(body: bytes) -> None:
    assert not is_complete("chat", body)
