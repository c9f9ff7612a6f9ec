"""However a stream is cut on its way, the client sees the same bytes and the same is learnt."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from backends.remote.chat_events import ChatEvents
from backends.remote.responses_events import ResponsesEvents
from backends.remote.stream_rewriter import StreamRewriter
from tests.backends.remote.rig import ROLE, STOP, USAGE, chunk
from tests.upstream import event

TEXT = chunk({"content": 'é漢🧑‍🚀\u2028 "model":"theirs" data: {'}, model="theirs")
SPACED = b"data: " + json.dumps(chunk({"content": "a"}, "")).encode() + b"\n\n"
CALL = chunk({"tool_calls": [{"index": 1, "id": "c", "function": {"name": "f", "arguments": ""}}]})
PARTS = [
    event(ROLE),
    event(TEXT),
    event(TEXT) * 3,
    event(CALL),
    event(STOP),
    event(USAGE),
    SPACED,
    event(TEXT).replace(b"\n", b"\r\n"),
    b": ping\n\n",
    b"id: 7\n",
    b"retry: 1\n\n",
    b"data: [DONE]\n\n",
    event({"error": {"message": "boom"}}),
    b"data: {broken\n\n",
    b"\n",
]
NAMED = [
    b"event: response.created\n" + event({"type": "response.created", "response": {"model": "theirs"}}),
    b"event: response.output_text.delta\n" + event({"type": "response.output_text.delta", "delta": "é\u2028"}),
    event({"type": "response.output_text.delta", "delta": "b"}),
    b"event: response.completed\n"
    + event({"type": "response.completed", "response": {"model": "theirs", "usage": {"input_tokens": 3, "output_tokens": 2}}}),
    b"event: error\n" + event({"type": "error", "message": "boom"}),
    b": ping\n\n",
]


def seen(rewriter: StreamRewriter, *pieces: bytes) -> tuple[object, ...]:
    shown = b""
    for piece in pieces:
        if rewriter.ended:
            break
        shown += rewriter.push(piece)
    shown += rewriter.finish_input()
    error = rewriter.error and (type(rewriter.error), rewriter.error.message)
    return shown, rewriter.closing(), rewriter.usage, rewriter.finish, rewriter.output_events, rewriter.saw_output, error


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join), st.lists(st.integers(0, 3000), max_size=10), st.booleans())
def test_chunks_of_a_chat_look_the_same_however_they_are_cut(data: bytes, cuts: list[int], keep: bool) -> None:
    whole = seen(ChatEvents("public", 1 << 20, keep_usage=keep), data)
    assert seen(ChatEvents("public", 1 << 20, keep_usage=keep), *pieces(data, cuts)) == whole
    one_by_one = [data[i : i + 1] for i in range(len(data))]
    assert seen(ChatEvents("public", 1 << 20, keep_usage=keep), *one_by_one) == whole


@given(st.lists(st.sampled_from(NAMED), max_size=8).map(b"".join), st.lists(st.integers(0, 1500), max_size=10))
def test_events_of_responses_look_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    assert seen(ResponsesEvents("public", 1 << 20), *pieces(data, cuts)) == seen(ResponsesEvents("public", 1 << 20), data)


@given(st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join))
def test_what_the_client_sees_is_always_plain_events_of_json(data: bytes) -> None:
    shown, closing, *_ = seen(ChatEvents("public", 1 << 20, keep_usage=True), data)
    *blocks, done, end = (shown + closing).split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    for block in blocks:
        assert block.startswith(b"data: {")
        assert b"\n" not in block
        value = json.loads(block[6:])
        assert "error" in value or isinstance(value["choices"], list)
