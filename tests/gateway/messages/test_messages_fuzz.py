"""Random damage to requests: the answer is 200 or a small 4xx in Anthropic's shape, never a 5xx."""

from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings

from tests.gateway.fuzzing import damaged

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

WORDS = ["any", "none", "text", "image", "tool_use", "\ud83d"]
SEEDS = [
    ("/v1/messages", SEED),
    ("/v1/messages/count_tokens", {name: SEED[name] for name in COUNTED}),
]


@given(case=damaged(SEEDS, WORDS))
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
