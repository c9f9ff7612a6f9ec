"""Random damage to requests: the answer is always 200 or a small 4xx in the shape of OpenAI, never a 5xx."""

import copy
import json
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=20),
    st.sampled_from(["", "required", "auto", "function_call", "message", "user", "assistant", "plain", "\x00", "💥" * 300]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=8
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += paths(item, (*at, key))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    path, seed = draw(st.sampled_from(SEEDS))
    body = copy.deepcopy(seed)
    for _ in range(draw(st.integers(1, 3))):
        places = paths(body)
        if not places:
            break
        *parents, last = draw(st.sampled_from(places))
        target: Any = body
        for key in parents:
            target = target[key]
        action = draw(st.sampled_from(["replace", "delete", "add", "repeat"]))
        if action == "replace":
            target[last] = draw(VALUES)
        elif action == "delete":
            del target[last]
        elif isinstance(target, dict):
            target[draw(st.text(max_size=8)) if action == "add" else last] = draw(VALUES)
        else:
            target.extend([copy.deepcopy(target[last])] * draw(st.integers(1, 150)))
    data = json.dumps(body, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(data)))
        data = data[:cut] + draw(st.binary(max_size=3)) + data[cut + draw(st.integers(0, 3)) :]
    return path, data


def known(http: httpx.Client, path: str, body: bytes) -> tuple[str, bytes]:
    """Put ids of what exists into a request, so that it gets further."""
    if "conv_1" in path or b"conv_1" in body:
        conversation = http.post("/v1/conversations").json()["id"]
        path, body = path.replace("conv_1", conversation), body.replace(b"conv_1", conversation.encode())
    if b"resp_1" in body:
        response = http.post("/v1/responses", json={"model": "plain", "input": "hi"}).json()["id"]
        body = body.replace(b"resp_1", response.encode())
    return path, body


@given(request_case=damaged())
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
