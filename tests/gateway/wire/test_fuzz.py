"""Random damage to requests: the answer is always 200 or a 4xx in the shape of OpenAI, never long, never a 5xx."""

import copy
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.wire.conftest import Gateway

SEEDS: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "model": "plain",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "r"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            "stream": False,
            "n": 1,
            "max_tokens": 4,
            "stop": ["x"],
            "seed": 1,
            "temperature": 1,
            "logit_bias": {"1": 1},
            "logprobs": True,
            "top_logprobs": 1,
            "metadata": {"a": "b"},
        },
    ),
    ("/v1/completions", {"model": "plain", "prompt": ["a", "b"], "max_tokens": 2, "echo": True, "logprobs": 1, "n": 1}),
    ("/v1/embeddings", {"model": "fake", "input": ["a", "b"], "encoding_format": "float", "dimensions": 4}),
    ("/tokenize", {"model": "fake", "prompt": "a", "add_special_tokens": True, "return_token_strs": True}),
    ("/detokenize", {"model": "fake", "tokens": [1, 2]}),
]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=20),
    st.sampled_from(["", "required", "auto", "text", "function", "user", "plain", "\x00", "💥" * 300]),
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
    text = json.dumps(body, ensure_ascii=draw(st.booleans()))
    data = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(data)))
        data = data[:cut] + draw(st.binary(max_size=3)) + data[cut + draw(st.integers(0, 3)) :]
    return path, data


@pytest.fixture(scope="module")
def fuzz_client(gateway: Gateway) -> Any:
    with httpx.Client(base_url=gateway.url, timeout=20) as client:
        yield client


@given(request_case=damaged())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_damaged_requests_get_200_or_a_small_4xx_in_our_shape(
    fuzz_client: httpx.Client, request_case: tuple[str, bytes]
) -> None:
    path, body = request_case
    answer = fuzz_client.post(path, content=body)
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, (body, answer.text)
    if answer.status_code != 200:
        assert len(answer.content) < 4096
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["message"]
