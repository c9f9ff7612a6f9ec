"""Random damage to requests: the answer is 200 or a small 4xx in Anthropic's shape, never a 5xx."""

import copy
import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SEED: dict[str, Any] = {
    "model": "tools",
    "max_tokens": 4,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "5m"}}],
    "messages": [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "b", "citations": None},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"x": [1]}, "caller": {"type": "direct"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}], "is_error": True},
                {"type": "text", "text": "go on"},
            ],
        },
        {"role": "system", "content": "n"},
        {"role": "assistant", "content": "The"},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "type": "custom", "strict": False}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "disabled"},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "high"},
    "stop_sequences": ["x"],
    "stream": False,
    "temperature": 1,
    "top_p": 0.5,
    "top_k": 3,
    "metadata": {"user_id": "u"},
    "service_tier": "auto",
}
COUNTED = ("model", "system", "messages", "tools", "tool_choice", "thinking", "output_config")

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=20),
    st.sampled_from(["", "any", "auto", "none", "text", "image", "tool_use", "user", "plain", "\x00", "\ud83d", "💥" * 300]),
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


def damage(draw: st.DrawFn, body: Any) -> None:
    *parents, last = draw(st.sampled_from(paths(body)))
    target = body
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


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    is_count = draw(st.booleans())
    body = copy.deepcopy({name: SEED[name] for name in COUNTED} if is_count else SEED)
    for _ in range(draw(st.integers(0, 3))):
        if body:
            damage(draw, body)
    data = json.dumps(body, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(data)))
        data = data[:cut] + draw(st.binary(max_size=3)) + data[cut + draw(st.integers(0, 3)) :]
    return "/v1/messages/count_tokens" if is_count else "/v1/messages", data


@given(case=damaged())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_damaged_requests_get_200_or_a_small_4xx_in_the_shape(http: httpx.Client, case: tuple[str, bytes]) -> None:
    path, body = case
    answer = http.post(path, content=body)
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, (body, answer.text)
    if answer.status_code != 200:
        assert len(answer.content) < 4096
        told = answer.json()
        assert set(told) == {"type", "error", "request_id"}
        assert told["error"]["type"] in ("invalid_request_error", "not_found_error")
        assert told["error"]["message"]


def test_the_undamaged_requests_are_answered(http: httpx.Client) -> None:
    assert http.post("/v1/messages", json=SEED).status_code == 200
    assert http.post("/v1/messages/count_tokens", json={name: SEED[name] for name in COUNTED}).status_code == 200
