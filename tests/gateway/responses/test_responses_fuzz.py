"""Random damage to requests: the answer is always 200 or a small 4xx in the shape of OpenAI, never a 5xx."""

from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.fuzzing import damaged

RESPONSE = {
    "model": "plain",
    "input": [
        {"type": "message", "role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "x"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "a", "annotations": [{"x": 1}], "logprobs": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r"}]},
        {"role": "user", "content": "go"},
    ],
    "instructions": "i",
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "medium"},
    "reasoning": {"effort": "none", "summary": "auto"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 1,
    "stream": False,
    "store": True,
    "max_output_tokens": 4,
    "temperature": 1,
    "metadata": {"a": "b"},
    "parallel_tool_calls": True,
}
SEEDS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", RESPONSE),
    ("/v1/responses", {"model": "plain", "input": "hi", "conversation": {"id": "conv_1"}, "stream": True}),
    ("/v1/responses", {"model": "plain", "input": "hi", "previous_response_id": "resp_1", "truncation": "disabled"}),
    ("/v1/conversations", {"items": RESPONSE["input"], "metadata": {"a": "b"}}),
    ("/v1/conversations/conv_1/items", {"items": RESPONSE["input"]}),
]

WORDS = ["required", "text", "function_call", "message", "assistant"]


def known(http: httpx.Client, path: str, body: bytes) -> tuple[str, bytes]:
    """Put ids of what exists into a request, so that it gets further."""
    if "conv_1" in path or b"conv_1" in body:
        conversation = http.post("/v1/conversations").json()["id"]
        path, body = path.replace("conv_1", conversation), body.replace(b"conv_1", conversation.encode())
    if b"resp_1" in body:
        response = http.post("/v1/responses", json={"model": "plain", "input": "hi"}).json()["id"]
        body = body.replace(b"resp_1", response.encode())
    return path, body


@given(request_case=damaged(SEEDS, WORDS))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_damaged_requests_get_200_or_a_small_4xx_in_our_shape(http: httpx.Client, request_case: tuple[str, bytes]) -> None:
    path, body = known(http, *request_case)
    answer = http.post(path, content=body)
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, (body, answer.text)
    if answer.status_code == 200:
        assert "response.failed" not in answer.text
        return
    assert len(answer.content) < 4096
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@given(pieces=st.lists(st.text(max_size=30), min_size=1, max_size=3), query=st.text(max_size=30))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_strange_ids_and_queries_are_not_found_or_refused(http: httpx.Client, pieces: list[str], query: str) -> None:
    for base in ("/v1/responses", "/v1/conversations"):
        url = "/".join([base, *(quote(piece, safe="") for piece in pieces)]) + f"?after={quote(query)}&limit={quote(query)}"
        assert http.get(url).status_code in (404, 405, 400)
        assert http.delete(url).status_code in (404, 405, 400)
