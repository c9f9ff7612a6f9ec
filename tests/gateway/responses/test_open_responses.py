"""The cases of the public Open Responses specification, over raw HTTP: what every answer and stream must hold."""

from typing import Any

import httpx
import msgspec
import pytest

from tests.gateway.responses.conftest import Server

REQUIRED = {
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "user",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
}

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


def user(text: str) -> dict[str, str]:
    return {"type": "message", "role": "user", "content": text}


CASES: dict[str, dict[str, Any]] = {
    "basic": {"model": "plain", "input": [user("Say hello.")]},
    "system prompt": {
        "model": "plain",
        "input": [{"type": "message", "role": "system", "content": "You are a pirate."}, user("Say hello.")],
    },
    "tools": {"model": "tools", "input": [user("How is the weather?")], "tools": [WEATHER]},
    "several turns": {
        "model": "plain",
        "input": [user("I am Alice."), {"type": "message", "role": "assistant", "content": "Hello."}, user("Who am I?")],
    },
    "thoughts": {"model": "recorder", "input": [user("Think.")]},
}


def check_response(response: dict[str, Any]) -> None:
    assert set(response) >= REQUIRED
    assert response["object"] == "response"
    assert response["status"] == "completed"
    assert response["output"]
    assert response["reasoning"] == {"effort": None, "summary": None}
    assert response["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    for tool in response["tools"]:
        assert set(tool) == {"type", "name", "description", "parameters", "strict"}
    for item in response["output"]:
        assert item["status"] == "completed"


def events_of(text: str) -> list[dict[str, Any]]:
    *blocks, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    events = []
    for block in blocks:
        name, data = block.split("\n")
        events.append(msgspec.json.decode(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


@pytest.mark.parametrize("case", CASES)
def test_an_answer_holds_all_that_is_required(http: httpx.Client, case: str) -> None:
    answer = http.post("/v1/responses", json=CASES[case])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-baton-deployment"] == CASES[case]["model"]
    check_response(answer.json())


@pytest.mark.parametrize("case", CASES)
def test_a_stream_holds_all_that_is_required(http: httpx.Client, case: str) -> None:
    answer = http.post("/v1/responses", json=CASES[case] | {"stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed"
    for event in (events[0], events[-1]):
        assert set(event["response"]) >= REQUIRED
    check_response(events[-1]["response"])
    added = [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"]
    assert added == [item["type"] for item in events[-1]["response"]["output"]]
    if case == "tools":
        kinds = {event["type"] for event in events}
        assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= kinds


def test_a_previous_response_is_continued(http: httpx.Client) -> None:
    first = http.post("/v1/responses", json=CASES["basic"]).json()
    second = http.post("/v1/responses", json=CASES["basic"] | {"previous_response_id": first["id"]}).json()
    check_response(second)
    assert second["previous_response_id"] == first["id"]
    assert second["output"][0]["content"][0]["text"] == "second"


def test_an_error_in_a_stream_is_followed_by_the_failed_response(http: httpx.Client) -> None:
    events = events_of(http.post("/v1/responses", json={"model": "breaks", "input": "hi", "stream": True}).text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["error"]["message"] == "The engine broke."
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["id"] == events[0]["response"]["id"]


def test_a_silence_is_filled_with_comments_which_clients_skip() -> None:
    with Server(ping_s=0.02) as server, httpx.Client(base_url=server.url, timeout=20) as http:
        text = http.post("/v1/responses", json={"model": "slow", "input": "hi", "max_output_tokens": 3, "stream": True}).text
    assert events_of(text.replace(": ping\n\n", ""))[-1]["type"] == "response.incomplete"


def test_only_post_is_allowed_and_the_model_may_only_be_left_out_when_there_is_one(http: httpx.Client) -> None:
    answer = http.get("/v1/responses")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")
    error = http.post("/v1/responses", json={"input": "hi"}).json()["error"]
    assert (error["code"], error["param"]) == ("missing_required_parameter", "model")
