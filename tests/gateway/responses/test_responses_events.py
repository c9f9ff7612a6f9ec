"""Deltas become events in the order of the API, and the same response that is given whole."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.types import Alternative, Delta, TokenLogprob, ToolCallDelta, Usage
from gateway.errors import UpstreamFailed
from gateway.schema.responses import ResponseRequest
from gateway.translate.responses import to_object
from gateway.translate.responses_draft import Draft
from gateway.translate.responses_events import ResponseEvents

USAGE = Usage(7, 5, 3)


def draft() -> Draft:
    return Draft(to_object(ResponseRequest(input="hi"), response_id="resp_1", model="m"), clock=lambda: 1000.5)


def parse(data: bytes) -> list[dict[str, Any]]:
    """The payloads of events; checks their framing."""
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        name, payload = block.split("\n")
        event = msgspec.json.decode(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def play(*deltas: Delta) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All events, and the final response."""
    told = draft()
    events = ResponseEvents(told)
    data = b""
    for delta in deltas:
        told.add(delta)
        data += events.encode(delta)
    return parse(data), msgspec.json.decode(told.body())


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_text_comes_in_the_order_of_the_api() -> None:
    events, response = play(Delta(text="He"), Delta(text="y\u2028"), Delta(finish="stop", usage=USAGE))
    assert types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["delta"] for event in events if "delta" in event] == ["He", "y\u2028"]
    ids = {event["item_id"] for event in events if "item_id" in event} | {events[2]["item"]["id"], events[8]["item"]["id"]}
    assert len(ids) == 1
    assert ids.pop().startswith("msg_")
    assert events[2]["item"] == events[8]["item"] | {"status": "in_progress", "content": []}
    assert events[3]["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert events[4]["logprobs"] == []
    assert events[7]["part"] == {"type": "output_text", "text": "Hey\u2028", "annotations": [], "logprobs": []}
    assert events[0]["response"] == events[1]["response"]
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    assert events[-1]["response"] == response
    assert response["output"] == [events[8]["item"]]
    assert (response["status"], response["completed_at"], response["incomplete_details"]) == ("completed", 1000, None)
    assert response["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }


def test_calls_follow_text_and_stay_open_to_the_end() -> None:
    pieces = [
        Delta(text="wait"),
        Delta(tool_calls=(ToolCallDelta(0, "call_a", "f"),)),
        Delta(tool_calls=(ToolCallDelta(0, arguments='{"a"'), ToolCallDelta(1, "call_b", "g", "{}"))),
        Delta(tool_calls=(ToolCallDelta(0, arguments=":1}"),)),
        Delta(finish="tool_calls", usage=USAGE),
    ]
    events, response = play(*pieces)
    assert types(events)[2:] == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    message, first, second = response["output"]
    assert message["status"] == "completed"
    assert first == {
        "type": "function_call",
        "id": first["id"],
        "status": "completed",
        "call_id": "call_a",
        "name": "f",
        "arguments": '{"a":1}',
    }
    assert (second["call_id"], second["arguments"]) == ("call_b", "{}")
    done = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert [(event["item_id"], event["output_index"], event["arguments"]) for event in done] == [
        (first["id"], 1, '{"a":1}'),
        (second["id"], 2, "{}"),
    ]


def test_reasoning_is_an_item_of_its_own() -> None:
    events, response = play(Delta(reasoning="hm"), Delta(text="so"), Delta(finish="stop", usage=USAGE))
    assert types(events)[2:8] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    reasoning, message = response["output"]
    assert reasoning == {
        "type": "reasoning",
        "id": reasoning["id"],
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    assert message["content"][0]["text"] == "so"


def test_log_probabilities_stand_beside_their_text() -> None:
    token = TokenLogprob(1, "ä".encode()[:1], -0.5, (Alternative(2, b"b", -1.5),))
    events, response = play(Delta(logprobs=(token,)), Delta(text="ä", logprobs=(token,)), Delta(finish="stop", usage=USAGE))
    shown = {
        "token": "\ufffd",
        "logprob": -0.5,
        "bytes": [0xC3],
        "top_logprobs": [{"token": "b", "logprob": -1.5, "bytes": [98]}],
    }
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [(event["delta"], event["logprobs"]) for event in deltas] == [("", [shown]), ("ä", [shown])]
    assert response["output"][0]["content"][0]["logprobs"] == [shown, shown]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_stops_early_is_incomplete(finish: Any, reason: str) -> None:
    events, response = play(Delta(text="He"), Delta(finish=finish), Delta(usage=USAGE))
    assert events[-1]["type"] == "response.incomplete"
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert response["output"][0]["status"] == "incomplete"
    assert response["completed_at"] is None


def test_an_empty_answer_is_an_empty_message() -> None:
    events, response = play(Delta(finish="stop", usage=USAGE))
    assert types(events)[2:] == [
        "output_item.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert response["output"][0]["content"][0]["text"] == ""


def test_what_breaks_in_the_middle_is_an_error_and_a_failed_response() -> None:
    told = draft()
    events = ResponseEvents(told)
    told.add(Delta(text="He"))
    data = events.encode(Delta(text="He")) + events.error(UpstreamFailed("It broke.", code="engine_failed"))
    error, failed = parse(data)[-2:]
    detail = {"message": "It broke.", "type": "upstream_error", "param": None, "code": "engine_failed"}
    assert error == {
        "type": "error",
        "sequence_number": 5,
        "code": "engine_failed",
        "message": "It broke.",
        "param": None,
        "error": detail,
    }
    response = failed["response"]
    assert (failed["type"], response["status"]) == ("response.failed", "failed")
    assert response["error"] == {"code": "engine_failed", "message": "It broke."}
    assert response["output"][0]["status"] == "incomplete"
    assert response["output"][0]["content"][0]["text"] == "He"


def test_a_stream_that_breaks_before_its_first_delta_still_begins() -> None:
    assert types(parse(ResponseEvents(draft()).error(UpstreamFailed("It broke.")))) == [
        "created",
        "in_progress",
        "error",
        "failed",
    ]


PIECES = st.one_of(
    st.builds(lambda text: Delta(text=text, tokens=1), st.text(max_size=3)),
    st.builds(lambda text: Delta(reasoning=text, tokens=1), st.text(max_size=3)),
    st.builds(
        lambda index, text: Delta(tool_calls=(ToolCallDelta(index, f"call_{index}", "f", text),)),
        st.integers(0, 3),
        st.text(max_size=3),
    ),
)


@given(deltas=st.lists(PIECES, max_size=12), finish=st.sampled_from(["stop", "length", "tool_calls"]))
def test_whatever_comes_the_events_add_up_to_the_response(deltas: list[Delta], finish: Any) -> None:
    events, response = play(*deltas, Delta(finish=finish, usage=USAGE))
    told: dict[int, dict[str, Any]] = {}
    for event in events:
        kind, index = event["type"], event.get("output_index")
        if kind == "response.output_item.added":
            assert index == len(told)
            told[index] = {"id": event["item"]["id"], "text": "", "open": True}
        elif kind.endswith(".delta"):
            assert told[index]["open"]
            assert told[index]["id"] == event["item_id"]
            told[index]["text"] += event["delta"]
        elif kind == "response.output_item.done":
            assert told[index]["open"]
            told[index] |= {"open": False, "item": event["item"]}
    assert response["output"] == [told[index]["item"] for index in range(len(told))]
    for item in told.values():
        whole = item["item"]
        assert not item["open"]
        assert item["text"] == (whole["arguments"] if "arguments" in whole else whole["content"][0]["text"])
