"""Random damage to requests: the answer is always 200 or a 4xx in the shape of OpenAI, never long, never a 5xx."""

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from tests.gateway.fuzzing import damaged
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

WORDS = ["required", "text", "function"]


@pytest.fixture(scope="module")
def fuzz_client(gateway: Gateway) -> Any:
    with httpx.Client(base_url=gateway.url, timeout=20) as client:
        yield client


@given(request_case=damaged(SEEDS, WORDS))
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
