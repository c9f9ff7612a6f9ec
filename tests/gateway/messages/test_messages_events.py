"""Deltas to events: to the byte, and for every way in which a backend may cut its answer into deltas."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import Failed
from backends.types import Delta, ToolCallDelta, Usage
from gateway.errors import NotReady
from gateway.translate.messages_api_answer import Gathered
from gateway.translate.messages_api_events import MessageEvents
from tests.gateway.messages.conftest import HI

USAGE = Usage(12, 7, 5)


def frames(deltas: list[Delta]) -> list[tuple[str, dict[str, Any]]]:
    events = MessageEvents("msg_1", "m")
    raw = b"".join(events.encode(delta) for delta in deltas).decode()
    assert raw.endswith("\n\n")
    found = []
    for frame in raw.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert all(data["type"] == name for name, data in found)
    return found


def test_a_stream_to_the_byte(http: httpx.Client) -> None:
    answer = http.post("/v1/messages", json={"model": "plain", "max_tokens": 2, "messages": HI, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["request-id"]
    text = answer.text
    message_id = json.loads(text.split("\n")[1].removeprefix("data: "))["message"]["id"]
    assert text.replace(message_id, "ID") == (
        'event: message_start\ndata: {"type":"message_start","message":{"id":"ID","type":"message","role":"assistant",'
        '"model":"plain","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,'
        '"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}\n\n'
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":'
        '{"type":"text","text":""}}\n\n'
        'event: ping\ndata: {"type":"ping"}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":'
        '{"type":"text_delta","text":"H"}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":'
        '{"type":"text_delta","text":"e"}}\n\n'
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},'
        '"usage":{"input_tokens":19,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}}\n\n'
        'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )


def test_a_call_begins_with_an_empty_input_and_goes_on_with_pieces_of_json() -> None:
    deltas = [
        Delta(tool_calls=(ToolCallDelta(0, "c0", "f"),)),
        Delta(tool_calls=(ToolCallDelta(0, arguments='{"a":'), ToolCallDelta(0, arguments="1}"))),
        Delta(tool_calls=(ToolCallDelta(1, "c1", "g", "{}"),)),
        Delta(finish="tool_calls", usage=USAGE),
    ]
    blocks = [data for name, data in frames(deltas) if name.startswith("content_block")]
    assert [block.get("content_block") or block.get("delta") or "stop" for block in blocks] == [
        {"type": "tool_use", "id": "c0", "name": "f", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"a":'},
        {"type": "input_json_delta", "partial_json": "1}"},
        "stop",
        {"type": "tool_use", "id": "c1", "name": "g", "input": {}},
        {"type": "input_json_delta", "partial_json": "{}"},
        "stop",
    ]
    assert [block["index"] for block in blocks] == [0, 0, 0, 0, 1, 1, 1]


def test_a_finish_may_come_before_the_usage() -> None:
    names = [name for name, _ in frames([Delta(text="a"), Delta(finish="stop", stop="x"), Delta(usage=USAGE)])]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    last = frames([Delta(text="a"), Delta(finish="stop", stop="x"), Delta(usage=USAGE)])[-2][1]
    assert last["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "x"}
    assert last["usage"]["input_tokens"] == 7


def test_a_stop_string_behind_a_call_does_not_hide_the_call() -> None:
    assert frames([Delta(finish="tool_calls", stop="x", usage=USAGE)])[-2][1]["delta"]["stop_reason"] == "tool_use"


def test_a_filtered_answer_is_a_refusal() -> None:
    assert frames([Delta(finish="content_filter", usage=USAGE)])[-2][1]["delta"]["stop_reason"] == "refusal"


def test_a_backend_that_mixes_up_its_calls_fails() -> None:
    events = MessageEvents("msg_1", "m")
    events.encode(Delta(tool_calls=(ToolCallDelta(0, "a", "f"), ToolCallDelta(1, "b", "f"))))
    with pytest.raises(Failed):
        events.encode(Delta(tool_calls=(ToolCallDelta(0, arguments="{"),)))


def test_an_answer_without_a_finish_fails_in_both_forms() -> None:
    with pytest.raises(Failed):
        MessageEvents("msg_1", "m").encode(Delta(text="a", usage=USAGE))
    gathered = Gathered()
    gathered.add(Delta(text="a", usage=USAGE))
    with pytest.raises(Failed):
        gathered.encode("msg_1", "m")


def test_an_error_is_an_event_and_nothing_comes_after_it() -> None:
    events = MessageEvents("msg_1", "m")
    assert events.error(NotReady("full")) + events.done == (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"full"},"request_id":null}\n\n'
    )


PIECES = st.lists(st.text(min_size=1, max_size=4), max_size=4)


@st.composite
def answers(draw: st.DrawFn) -> list[Delta]:
    deltas = [Delta(reasoning=piece) for piece in draw(PIECES)] + [Delta(text=piece) for piece in draw(PIECES)]
    for index in range(draw(st.integers(0, 3))):
        arguments = json.dumps(draw(st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=3)))
        cut = draw(st.integers(0, len(arguments)))
        deltas.append(
            Delta(tool_calls=(ToolCallDelta(index, f"c{index}", "f"), ToolCallDelta(index, arguments=arguments[:cut])))
        )
        deltas.append(Delta(tool_calls=(ToolCallDelta(index, arguments=arguments[cut:]),)))
    if draw(st.booleans()):
        return [*deltas, Delta(finish="stop", usage=USAGE)]
    whole = Delta(
        reasoning="".join(delta.reasoning for delta in deltas),
        text="".join(delta.text for delta in deltas),
        tool_calls=tuple(call for delta in deltas for call in delta.tool_calls),
        finish="stop",
        usage=USAGE,
    )
    return [whole]


def rebuilt(deltas: list[Delta]) -> list[dict[str, Any]]:
    """The content that a client puts together, which must see each block open before it goes on and close before the next."""
    blocks: list[dict[str, Any]] = []
    inputs: dict[int, str] = {}
    is_open = False
    for name, data in frames(deltas):
        if name == "content_block_start":
            assert not is_open
            assert data["index"] == len(blocks)
            blocks.append(data["content_block"])
        if name == "content_block_delta":
            assert is_open
            delta = data["delta"]
            key = delta["type"].removesuffix("_delta")
            if key == "input_json":
                inputs[data["index"]] = inputs.get(data["index"], "") + delta["partial_json"]
            else:
                blocks[data["index"]][key] += delta[key]
        if name.startswith("content_block"):
            assert data["index"] == len(blocks) - 1
            is_open = name != "content_block_stop"
    assert not is_open
    for index, text in inputs.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


@given(answers())
def test_a_stream_says_what_the_whole_answer_says(deltas: list[Delta]) -> None:
    gathered = Gathered()
    for delta in deltas:
        gathered.add(delta)
    assert rebuilt(deltas) == json.loads(gathered.encode("msg_1", "m"))["content"]
