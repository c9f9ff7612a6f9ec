"""A stream put together is the body that the client would have had without streaming."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.types import Delta, Usage
from gateway.context.assemble import Assembler
from gateway.context.cached_answer import CachedAnswer, is_complete
from gateway.context.event_lines import EventLines
from gateway.context.replay import replay_stream
from tests.gateway.context.openai_answers import CHATS, USAGE, without_nulls

ROOMY = 1 << 20
DONE = b"data: [DONE]\n\n"


def stream_of(body: dict[str, Any], *, include_usage: bool = True) -> bytes:
    answer = CachedAnswer("chat", msgspec.json.encode(body), 0.0)
    return b"".join(replay_stream(answer, body["id"], body["created"], include_usage))


def put_together(pieces: Iterator[bytes] | list[bytes], *, choices: int = 1, max_bytes: int = ROOMY) -> bytes | None:
    assembler = Assembler("chat", choices=choices, max_bytes=max_bytes)
    for piece in pieces:
        assembler.feed(piece)
    return assembler.finish()


def event(choice: dict[str, Any], **more: Any) -> bytes:
    chunk = {
        "id": "i",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0} | choice],
    } | more
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


@pytest.mark.parametrize("body", CHATS.values(), ids=CHATS)
def test_a_stream_becomes_the_body_that_it_was_made_from(body: dict[str, Any]) -> None:
    made = put_together([stream_of(body)], choices=len(body["choices"]))
    assert made is not None
    assert is_complete("chat", made)
    assert without_nulls(msgspec.json.decode(made)) == without_nulls(body)
    assert list(msgspec.json.decode(made))[:4] == ["id", "object", "created", "model"]


@settings(deadline=None)
@given(st.sampled_from(list(CHATS.values())), st.data())
def test_the_network_may_cut_a_stream_anywhere(body: dict[str, Any], data: st.DataObject) -> None:
    stream = stream_of(body)
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    stream = stream.replace(b"\n", end).replace(
        b"data: ", data.draw(st.sampled_from([b"data:", b"data: ", b": ping" + end * 2 + b"data: "]))
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    if end == b"\r":
        pieces.append(b"\n")
    size = len(body["choices"])
    assert put_together(pieces, choices=size) == put_together([stream_of(body)], choices=size)


def test_a_stream_without_usage_takes_it_from_who_counted() -> None:
    assembler = Assembler("chat", choices=1, max_bytes=ROOMY)
    assembler.feed(stream_of(CHATS["text"], include_usage=False))
    assert assembler.finish() is None
    assembler = Assembler("chat", choices=1, max_bytes=ROOMY)
    assembler.feed(stream_of(CHATS["text"], include_usage=False))
    made = assembler.finish(Usage(prompt_tokens=9, completion_tokens=12, cached_tokens=4))
    assert made is not None
    assert msgspec.json.decode(made)["usage"] == USAGE


def test_completions_add_up() -> None:
    def chunk(index: int, text: str, finish: str | None = None, offset: int | None = None) -> bytes:
        logprobs = None if offset is None else {"tokens": [text], "token_logprobs": [-1.0], "text_offset": [offset]}
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return event(choice, object="text_completion", id="cmpl-1")

    assembler = Assembler("completions", choices=2, max_bytes=ROOMY)
    for piece in (chunk(0, "Hi", offset=0), chunk(1, "x"), chunk(0, " you", "stop", 2), chunk(1, "", "length"), DONE):
        assembler.feed(piece)
    made = assembler.finish(Usage(1, 2))
    assert made is not None
    body = msgspec.json.decode(made)
    assert (body["id"], body["object"]) == ("cmpl-1", "text_completion")
    logprobs = {"tokens": ["Hi", " you"], "token_logprobs": [-1.0, -1.0], "text_offset": [0, 2]}
    assert body["choices"] == [
        {"index": 0, "text": "Hi you", "logprobs": logprobs, "finish_reason": "stop"},
        {"index": 1, "text": "x", "logprobs": None, "finish_reason": "length"},
    ]


def test_chunks_of_the_gateway_itself_add_up() -> None:
    from gateway.translate.chat_chunks import ChatChunks
    from gateway.translate.stamp import Stamp

    encoder = ChatChunks(Stamp("chatcmpl-1", 5, "m", "fp"), 1, include_usage=False)
    deltas = [Delta(text="Hel"), Delta(text="lo"), Delta(finish="stop"), Delta(usage=Usage(3, 2))]
    made_of = b"".join(encoder.encode(delta) for delta in deltas) + DONE
    assembler = Assembler("chat", choices=1, max_bytes=ROOMY)
    assembler.feed(made_of)
    made = assembler.finish(Usage(3, 2))
    assert made is not None
    (choice,) = msgspec.json.decode(made)["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert choice["finish_reason"] == "stop"


FINISH = event({"delta": {}, "finish_reason": "stop"}, usage=USAGE)
HELLO = event({"delta": {"role": "assistant", "content": "hello"}})


@pytest.mark.parametrize(
    "pieces",
    {
        "cut short": [HELLO, FINISH],
        "nothing": [],
        "only done": [DONE],
        "no usage": [HELLO, event({"delta": {}, "finish_reason": "stop"}), DONE],
        "an error": [HELLO, b'data: {"error":{"message":"broke"}}\n\n', FINISH, DONE],
        "no JSON": [HELLO, b"data: {\n\n", FINISH, DONE],
        "no object": [HELLO, b"data: 1\n\n", FINISH, DONE],
        "choices are no list": [HELLO, b'data: {"choices":1}\n\n', FINISH, DONE],
        "a choice is no object": [HELLO, b'data: {"choices":[1]}\n\n', FINISH, DONE],
        "a choice too many": [HELLO, event({"index": 1}), FINISH, DONE],
        "a strange call number": [HELLO, event({"delta": {"tool_calls": [{"index": 10**9}]}}), FINISH, DONE],
        "a delta is no object": [HELLO, event({"delta": [1]}), FINISH, DONE],
        "a call is no object": [event({"delta": {"tool_calls": ["x"]}}), FINISH, DONE],
    }.items(),
    ids=lambda item: item[0],
)
def test_what_is_no_whole_answer_becomes_nothing(pieces: tuple[str, list[bytes]]) -> None:
    assert put_together(pieces[1]) is None


def test_an_open_choice_is_no_whole_answer() -> None:
    made = put_together([HELLO, event({"delta": {}}, usage=USAGE), DONE])
    assert made is None or not is_complete("chat", made)
    assert put_together([HELLO, FINISH, DONE], choices=2) is None


ENDLESS = {
    "text": (40, {"delta": {"content": "x" * 1000}}),
    "tiny pieces": (1000, {"delta": {"content": "x"}}),
    "arguments": (40, {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "x" * 1000}}]}}),
    "log probabilities": (40, {"delta": {}, "logprobs": {"content": [{"token": "x" * 1000, "bytes": [120]}]}}),
    "an unknown list": (40, {"delta": {"images": ["x" * 1000]}}),
}


@pytest.mark.parametrize(("times", "choice"), ENDLESS.values(), ids=ENDLESS)
def test_a_long_stream_is_given_up_and_forgotten(times: int, choice: dict[str, Any]) -> None:
    assembler = Assembler("chat", choices=1, max_bytes=10_000)
    for _ in range(times):
        assembler.feed(event(choice))
    assembler.feed(FINISH + DONE)
    assert assembler.finish() is None
    assert assembler._choices == {}


def test_unknown_fields_count_when_they_change() -> None:
    assembler = Assembler("chat", choices=1, max_bytes=10_000)
    for _ in range(1000):
        assembler.feed(event({"delta": {}}, same="x" * 100))
    assembler.feed(FINISH + DONE)
    assert assembler.finish() is not None
    assembler = Assembler("chat", choices=1, max_bytes=10_000)
    for number in range(1000):
        assembler.feed(event({"delta": {}}, **{f"field{number}": "x" * 100}))
    assembler.feed(FINISH + DONE)
    assert assembler.finish() is None


def test_names_that_a_server_repeats_are_taken_once() -> None:
    def piece(arguments: str) -> bytes:
        call = {"index": 0, "id": "c1", "type": "function", "function": {"arguments": arguments}}
        return event({"delta": {"role": "assistant", "tool_calls": [call]}})

    made = put_together([piece('{"a"'), piece(":1}"), FINISH, DONE])
    assert made is not None
    message = msgspec.json.decode(made)["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert message["tool_calls"] == [{"id": "c1", "type": "function", "function": {"arguments": '{"a":1}'}}]


def test_a_line_end_may_be_cut_in_two() -> None:
    lines = EventLines(100)
    assert [*lines.feed(b"data: a\r"), *lines.feed(b"\ndata: b\r"), *lines.feed(b"\n\r\n")] == [b"a\nb"]


def test_an_endless_line_is_given_up() -> None:
    lines = EventLines(1000)
    for _ in range(10):
        list(lines.feed(b"x" * 100))
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        list(lines.feed(b"x"))
    lines = EventLines(1000)
    for _ in range(10):
        list(lines.feed(b"data: " + b"x" * 94 + b"\n"))
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        list(lines.feed(b"data: x\n"))


def test_several_data_lines_are_one_event() -> None:
    assert list(EventLines(100).feed(b"event: x\ndata: a\ndata:b\nid: 1\n\n\n\n:c\n\ndata\n\n")) == [b"a\nb"]
