"""Each row of the error table, over HTTP: status, shape, code, param, size."""

import gzip
import json
from typing import Any

import httpx
import pytest

from tests.gateway.wire.raw import HI

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
FUNCTION = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def deep(levels: int) -> Any:
    value: Any = {"type": "string"}
    for _ in range(levels):
        value = {"anyOf": [value]}
    return value


def refuse(answer: httpx.Response, status: int, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.content) < 4096
    body = answer.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["message"]
    assert (body["error"]["code"], body["error"]["param"]) == (code, param), body
    assert answer.headers["x-request-id"]
    return body["error"]


NOT_JSON = [b"", b"{", b'{"model":', b"hello", b"{'a':1}", b'\xef\xbb\xbf{"a":1}', b'{"messages":"\xff"}', b"\x00" * 100]
NOT_OBJECTS = [b"[]", b"null", b'"x"', b"1", b"true"]


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"])
@pytest.mark.parametrize("body", NOT_JSON)
def test_a_body_that_is_not_json(http: httpx.Client, path: str, body: bytes) -> None:
    answer = http.post(path, content=body)
    assert (
        refuse(answer, 400, answer.json()["error"]["code"], answer.json()["error"]["param"])["type"] == "invalid_request_error"
    )


@pytest.mark.parametrize("body", NOT_OBJECTS)
def test_a_body_that_is_no_object(http: httpx.Client, body: bytes) -> None:
    refuse(http.post(CHAT, content=body), 400, "invalid_type")


LITERALS = [
    '{"model":"fake","messages":[{"role":"user","content":"\\ud83d"}]}',
    '{"model":"fake","messages":[{"role":"user","content":"\\udc00 x"}]}',
    '{"model":"fake","messages":[{"role":"user","content":"\\ud83d x"}],"tools":[]}',
    '{"model":"fake","messages":[{"role":"user","content":"hi"}],"temperature":NaN}',
    '{"model":"fake","messages":[{"role":"user","content":"hi"}],"temperature":Infinity}',
    '{"model":"fake","messages":' + "[" * 2000 + "]" * 2000 + "}",
    '{"model":"fake","messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":'
    + '{"a":' * 100_000
    + "1"
    + "}" * 100_001,
]


@pytest.mark.parametrize("body", LITERALS, ids=range(len(LITERALS)))
def test_literals_that_no_other_json_may_hold(http: httpx.Client, body: str) -> None:
    error = http.post(CHAT, content=body.encode()).json()["error"]
    refuse(http.post(CHAT, content=body.encode()), 400, error["code"], error["param"])


def test_a_number_that_is_no_double(http: httpx.Client) -> None:
    body = b'{"model":"fake","messages":[{"role":"user","content":"hi"}],"temperature":1e999}'
    refuse(http.post(CHAT, content=body), 400, "invalid_value", "temperature")


MISSING = "missing_required_parameter"
CHAT_ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": None}, "invalid_type", "messages"),
    ({"messages": []}, "invalid_value", "messages"),
    ({"messages": [{"role": "user"}]}, MISSING, "messages[0].content"),
    ({"messages": [{"content": "a"}]}, MISSING, "messages[0].role"),
    ({"messages": [USER, {"role": "user", "content": None}]}, "invalid_type", "messages[1].content"),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "invalid_value", "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "invalid_type", "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "invalid_value", "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "invalid_value", "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, MISSING, "messages[0].content[0].text"),
    ({"messages": [{"role": "tool", "content": "x"}]}, MISSING, "messages[0].tool_call_id"),
    ({"messages": [USER, {"role": "assistant"}]}, MISSING, "messages[1].content"),
    ({"messages": [USER, {"role": "assistant", "tool_calls": []}]}, MISSING, "messages[1].content"),
    ({"messages": [USER, {**USER, "zzz": 1}]}, "unknown_parameter", "messages[1].zzz"),
    ({"messages": [USER] * 2049}, "invalid_value", "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b"}}]}]},
        "unsupported_parameter",
        "messages[0].content",
    ),
    ({"zzz": 1}, "unknown_parameter", "zzz"),
    ({"stream": "true"}, "invalid_type", "stream"),
    ({"n": 0}, "invalid_value", "n"),
    ({"n": 129}, "invalid_value", "n"),
    ({"n": "1"}, "invalid_type", "n"),
    ({"n": 10**30}, "invalid_value", "n"),
    ({"temperature": -0.1}, "invalid_value", "temperature"),
    ({"temperature": 2.1}, "invalid_value", "temperature"),
    ({"top_p": 0}, "invalid_value", "top_p"),
    ({"top_p": 2}, "invalid_value", "top_p"),
    ({"top_k": -1}, "invalid_value", "top_k"),
    ({"min_p": 1.1}, "invalid_value", "min_p"),
    ({"frequency_penalty": 3}, "invalid_value", "frequency_penalty"),
    ({"presence_penalty": -3}, "invalid_value", "presence_penalty"),
    ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
    ({"seed": 2**63}, "invalid_value", "seed"),
    ({"seed": 1.5}, "invalid_type", "seed"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "invalid_value", "max_tokens"),
    ({"stop": ["a"] * 5}, "invalid_value", "stop"),
    ({"stop": ["x" * 513]}, "invalid_value", "stop[0]"),
    ({"logit_bias": {"1": 101}}, "invalid_value", "logit_bias[...]"),
    ({"logit_bias": {"a": 1}}, "invalid_type", "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(301)}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"999999999": 1}}, "invalid_value", "logit_bias"),
    ({"stop_token_ids": [999999999]}, "invalid_value", "stop_token_ids"),
    ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
    ({"logprobs": 1}, "invalid_type", "logprobs"),
    ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
    ({"stream": True, "stream_options": {"zz": 1}}, "unknown_parameter", "stream_options.zz"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "unsupported_value",
        "stream_options.include_obfuscation",
    ),
    ({"response_format": {"type": "json_schema"}}, MISSING, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, MISSING, "response_format.json_schema.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
        "invalid_value",
        "response_format.json_schema.name",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": deep(40)}}},
        "invalid_value",
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": 10**25}}}},
        "invalid_value",
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [0] * 20_001}}}},
        "invalid_value",
        "response_format.json_schema.schema",
    ),
    ({"response_format": {"type": "yaml"}}, "invalid_value", "response_format.type"),
    ({"tools": [FUNCTION] * 129}, "invalid_value", "tools"),
    ({"tools": [FUNCTION, FUNCTION]}, "invalid_value", "tools[1].function.name"),
    ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "invalid_value", "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "invalid_value", "tools[0].function.name"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": deep(40)}}]},
        "invalid_value",
        "tools[0].function.parameters",
    ),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "invalid_value", "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": "always"}, "invalid_value", "tool_choice"),
    ({"chat_template_kwargs": deep(40)}, "invalid_value", "chat_template_kwargs"),
    ({"metadata": {"k" * 65: "v"}}, "invalid_value", "metadata"),
    ({"metadata": {"k": "v" * 513}}, "invalid_value", "metadata[...]"),
    ({"metadata": {str(i): "v" for i in range(17)}}, "invalid_value", "metadata"),
    ({"store": True}, "unsupported_value", "store"),
    ({"service_tier": "flex"}, "unsupported_value", "service_tier"),
    ({"reasoning_effort": "high"}, "unsupported_value", "reasoning_effort"),
    ({"verbosity": "low"}, "unsupported_value", "verbosity"),
    ({"modalities": ["text", "audio"]}, "unsupported_value", "modalities"),
    ({"prompt_cache_retention": "24h"}, "unsupported_value", "prompt_cache_retention"),
    ({"audio": {"voice": "x", "format": "wav"}}, "unsupported_parameter", "audio"),
    ({"functions": [{"name": "f"}]}, "unsupported_parameter", "functions"),
    ({"function_call": "auto"}, "unsupported_parameter", "function_call"),
    ({"prediction": {"type": "content", "content": "x"}}, "unsupported_parameter", "prediction"),
    ({"web_search_options": {}}, "unsupported_parameter", "web_search_options"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "code", "param"), CHAT_ROWS, ids=lambda value: str(value)[:60])
def test_chat_parameters(http: httpx.Client, fields: dict[str, Any], code: str, param: str, stream: bool) -> None:
    body = {"model": "fake", "messages": HI, "stream": stream} | fields
    if fields.get("stream_options") == {"include_usage": True}:
        body["stream"] = False
    assert refuse(http.post(CHAT, json=body), 400, code, param)["type"] == "invalid_request_error"


def test_refusals_say_why(http: httpx.Client) -> None:
    answer = http.post(CHAT, json={"model": "fake", "messages": HI, "functions": []})
    assert answer.json()["error"]["message"] == "'functions' is not supported: it is deprecated; use `tools`."


COMPLETION_ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": None}, "invalid_type", "prompt"),
    ({"prompt": []}, "invalid_value", "prompt"),
    ({"prompt": [[]]}, "invalid_value", "prompt"),
    ({"prompt": [1, "a"]}, "invalid_type", "prompt"),
    ({"prompt": [1.5]}, "invalid_type", "prompt[0]"),
    ({"prompt": [-1]}, "invalid_value", "prompt[0]"),
    ({"prompt": ["a"] * 129}, "invalid_value", "prompt"),
    ({"prompt": ["a"] * 2, "n": 65}, "invalid_value", "n"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"logprobs": 6}, "invalid_value", "logprobs"),
    ({"logprobs": True}, "invalid_type", "logprobs"),
    ({"best_of": 2}, "unsupported_value", "best_of"),
    ({"suffix": "x"}, "unsupported_parameter", "suffix"),
    ({"messages": HI}, "unknown_parameter", "messages"),
]


@pytest.mark.parametrize(("fields", "code", "param"), COMPLETION_ROWS, ids=lambda value: str(value)[:60])
def test_completion_parameters(http: httpx.Client, fields: dict[str, Any], code: str, param: str) -> None:
    refuse(http.post("/v1/completions", json={"model": "fake", "prompt": "a"} | fields), 400, code, param)


EMBEDDING_ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"input": ""}, "invalid_value", "input"),
    ({"input": []}, "invalid_value", "input"),
    ({"input": ["a", ""]}, "invalid_value", "input[1]"),
    ({"input": [[1], []]}, "invalid_value", "input[1]"),
    ({"input": ["a"] * 2049}, "invalid_value", "input"),
    ({"encoding_format": "hex"}, "invalid_value", "encoding_format"),
    ({"dimensions": 0}, "invalid_value", "dimensions"),
    ({"dimensions": 17}, "invalid_value", "dimensions"),
    ({"model": "plain"}, "unsupported_parameter", "model"),
]


@pytest.mark.parametrize(("fields", "code", "param"), EMBEDDING_ROWS, ids=lambda value: str(value)[:60])
def test_embedding_parameters(http: httpx.Client, fields: dict[str, Any], code: str, param: str) -> None:
    refuse(http.post("/v1/embeddings", json={"model": "fake", "input": "a"} | fields), 400, code, param)


@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow_names_both_numbers_before_the_stream(http: httpx.Client, stream: bool) -> None:
    body = {"model": "small", "messages": [{"role": "user", "content": "x" * 100}], "stream": stream}
    error = refuse(http.post(CHAT, json=body), 400, "context_length_exceeded", "messages")
    assert "117" in error["message"]
    assert "64" in error["message"]
    body = {"model": "small", "prompt": "x" * 100, "stream": stream}
    refuse(http.post("/v1/completions", json=body), 400, "context_length_exceeded", "prompt")
    if not stream:
        body = {"model": "small", "input": "x" * 100}
        refuse(http.post("/v1/embeddings", json=body), 400, "context_length_exceeded", "input[0]")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "status", "kind", "code", "param"),
    [
        ("nope", 404, "invalid_request_error", "model_not_found", "model"),
        ("failed-first", 502, "upstream_error", "engine_failed", None),
        ("timed-out", 504, "upstream_error", "timeout", None),
        ("full", 503, "server_error", "engine_overloaded", None),
        ("down", 503, "server_error", "model_unavailable", None),
        ("buggy", 500, "server_error", "internal_error", None),
    ],
)
def test_errors_of_backends(
    http: httpx.Client, model: str, status: int, kind: str, code: str, param: str | None, stream: bool
) -> None:
    answer = http.post(CHAT, json={"model": model, "messages": HI, "stream": stream})
    error = refuse(answer, status, code, param)
    assert error["type"] == kind
    assert "secret" not in answer.text
    assert ("retry-after" in answer.headers) == (status == 503)
    if status == 500:
        assert answer.headers["x-request-id"] in error["message"]


def test_an_unknown_model_is_told_what_is_served(http: httpx.Client) -> None:
    message = http.post(CHAT, json={"model": "nope", "messages": HI}).json()["error"]["message"]
    assert "fake, plain" in message
    assert "more" in message


def test_a_missing_model_is_an_error_where_there_is_a_choice(http: httpx.Client) -> None:
    refuse(http.post(CHAT, json={"messages": HI}), 400, MISSING, "model")
    refuse(http.post("/v1/embeddings", json={"input": "a"}), 400, MISSING, "model")


def test_unknown_urls_and_methods(http: httpx.Client) -> None:
    refuse(http.get("/v1/nope"), 404, "unknown_url")
    refuse(http.post("/v1/v1/chat/completions"), 404, "unknown_url")
    answer = http.get(CHAT)
    refuse(answer, 405, "method_not_supported")
    assert "POST" in answer.headers["allow"]
    refuse(http.delete("/v1/models"), 405, "method_not_supported")


def test_any_content_type_is_read_as_json_but_a_compressed_body_is_not(http: httpx.Client) -> None:
    body = json.dumps({"model": "plain", "messages": HI}).encode()
    for content_type in ("application/x-www-form-urlencoded", "text/plain", "nonsense", ""):
        assert http.post(CHAT, content=body, headers={"content-type": content_type}).status_code == 200
    answer = http.post(CHAT, content=gzip.compress(body), headers={"content-encoding": "gzip"})
    refuse(answer, 415, "unsupported_media_type")


def test_errors_do_not_echo_megabytes(http: httpx.Client) -> None:
    huge = "x" * 3_000_000
    for fields in ({"messages": huge}, {huge: 1}, {"tool_choice": huge}, {"model": huge}, {"service_tier": huge}):
        answer = http.post(CHAT, json={"model": "fake", "messages": HI} | fields)
        assert answer.status_code in (400, 404)
        assert len(answer.content) < 4096
    assert len(http.get("/v1/" + "x" * 5000).content) < 4096


def test_malformed_arguments_in_history_are_passed_on_not_a_500(http: httpx.Client) -> None:
    call = CALL | {"function": {"name": "f", "arguments": '{"a": '}}
    messages = [USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": ""}]
    assert http.post(CHAT, json={"model": "fake", "messages": messages}).status_code == 200


def test_everything_that_the_api_defines_to_have_no_effect_is_accepted(http: httpx.Client) -> None:
    body = {
        "user": "u",
        "metadata": {"k": "v"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "in_memory",
        "modalities": ["text"],
        "reasoning_effort": "none",
        "verbosity": "medium",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "logit_bias": {},
    }
    assert http.post(CHAT, json={"model": "fake", "messages": HI} | body).status_code == 200


def test_tokenize_takes_exactly_one_text(http: httpx.Client) -> None:
    refuse(http.post("/tokenize", json={"model": "fake"}), 400, MISSING, "prompt")
    refuse(http.post("/tokenize", json={"model": "fake", "prompt": "a", "content": "a"}), 400, "invalid_value", "prompt")
    refuse(http.post("/detokenize", json={"model": "fake", "tokens": [300]}), 400, "invalid_value")
    refuse(http.post("/detokenize", json={"model": "fake", "tokens": [-1]}), 400, "invalid_value", "tokens[0]")
