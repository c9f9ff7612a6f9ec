"""Hostile input over HTTP to the real engine: refused with an error of OpenAI's shape, and the processes live."""

import json

import httpx
import pytest

from tests.e2e.gateway_process import CHAT, HI, Server

MAX_ERROR_BYTES = 4096


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def schema_format(schema: object) -> dict[str, object]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def deep_any_of(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"anyOf": [schema]}
    return schema


def tool(parameters: object) -> dict[str, object]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}], "tool_choice": "required"}


RAW_BODIES = {
    "nothing": b"",
    "half": b'{"model":',
    "array": b"[]",
    "null": b"null",
    "number": b"1",
    "nan": b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    "infinity": b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
    "lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
    "invalid utf-8": b'{"messages": [{"role": "user", "content": "\xff"}]}',
    "deep array": b'{"messages": ' + nested(50_000).encode() + b"}",
    "deep template variable": b'{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"x": %s}}'
    % nested(2_000).encode(),
    "schema 10,000 levels deep": b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", '
    b'"json_schema": {"name": "x", "schema": ' + b'{"anyOf": [' * 10_000 + b"{}" + b"]}" * 10_000 + b"}}}",
    "20 MB of the wrong type": b'{"messages": "' + b"x" * (20 << 20) + b'"}',
}

FIELDS = {
    "bias out of the vocabulary": {"logit_bias": {"999999999": 1}},
    "bias just out of the vocabulary": {"logit_bias": {"49152": 1}},
    "negative bias token": {"logit_bias": {"-1": 1}},
    "stop token out of the vocabulary": {"stop_token_ids": [999_999_999]},
    "n of 0": {"n": 0},
    "n of 129": {"n": 129},
    "max_tokens of 0": {"max_tokens": 0},
    "seed beyond 64 bits": {"seed": 1 << 64},
    "top_p of 2": {"top_p": 2},
    "a number as text": {"temperature": "1"},
    "top_logprobs alone": {"top_logprobs": 2},
    "no schema": {"response_format": {"type": "json_schema"}},
    "pattern of 20,000 characters": schema_format({"type": "string", "pattern": "a" * 20_000}),
    "pattern that explodes": schema_format({"type": "string", "pattern": "((a{1,500}){1,500}){1,500}"}),
    "pattern that backtracks": schema_format({"type": "string", "pattern": "(a+)+$" + "(b*)*" * 200}),
    "schema 300 levels deep": schema_format(deep_any_of(300)),
    "schema that refers to itself": schema_format({"$ref": "#"}),
    "schema in a circle": schema_format(
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    ),
    "schema from elsewhere": schema_format({"$ref": "http://169.254.169.254/latest"}),
    "schema with a billion items": schema_format({"type": "array", "items": {"type": "string"}, "minItems": 1_000_000_000}),
    "schema that allows nothing": schema_format(False),
    "unenforceable schema": schema_format({"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}),
    "tool that refers to itself": tool({"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}, "required": ["x"]}),
    "image for a text model": {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/x.png"}}]},
        ]
    },
    "unknown kind of part": {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]},
    "unknown role": {"messages": [{"role": "robot", "content": "x"}]},
    "no message": {"messages": []},
    "template variable that replaces the messages": {"chat_template_kwargs": {"messages": []}},
}


def assert_refused(response: httpx.Response) -> None:
    assert 400 <= response.status_code < 500, response.text[:500]
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert len(response.content) < MAX_ERROR_BYTES


@pytest.fixture(autouse=True)
def _engine_survives(server: Server):
    before = server.engine().pid
    yield
    assert server.engine().pid == before
    assert server.is_ready()


@pytest.mark.parametrize("name", RAW_BODIES)
def test_body_that_is_no_request(server: Server, name: str) -> None:
    assert_refused(server.http.post(CHAT, content=RAW_BODIES[name], timeout=20))


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("stream", [False, True])
def test_value_that_cannot_be_honoured(server: Server, name: str, stream: bool) -> None:
    body = {"messages": HI, "max_tokens": 4, "stream": stream} | FIELDS[name]
    assert_refused(server.http.post(CHAT, json=body, timeout=20))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": [999_999_999]}),
        ("/v1/completions", {"prompt": [-1]}),
        ("/v1/completions", {"prompt": [49_152]}),
        ("/v1/completions", {"prompt": [1 << 70]}),
        ("/v1/completions", {"prompt": ""}),
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": "x", "suffix": "y"}),
        ("/v1/embeddings", {"input": ""}),
        ("/v1/embeddings", {"input": []}),
        ("/v1/embeddings", {"input": [[999_999_999]]}),
        ("/v1/embeddings", {"input": "word " * 3000}),
        ("/v1/embeddings", {"input": "x", "dimensions": 100_000}),
        ("/tokenize", {"content": 1}),
        ("/detokenize", {"tokens": [999_999_999]}),
        ("/detokenize", {"tokens": [-1]}),
    ],
)
def test_other_endpoints(server: Server, path: str, body: dict) -> None:
    assert_refused(server.http.post(path, content=json.dumps(body), timeout=20))


def test_curl_without_a_content_type_is_understood(server: Server) -> None:
    body = json.dumps({"messages": HI, "max_tokens": 1})
    answer = server.http.post(CHAT, content=body, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 200


def test_history_of_tool_calls_in_every_shape_is_accepted(server: Server) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"broken'}}
    results = ["12", [{"type": "text", "text": "12"}]]
    for content, result in (({"content": None}, results[0]), ({}, results[1]), ({"content": ""}, results[0])):
        asked = {"role": "assistant", "tool_calls": [call]} | content
        messages = [*HI, asked, {"role": "tool", "tool_call_id": "c1", "content": result}]
        answer = server.http.post(CHAT, json={"messages": messages, "max_tokens": 1})
        assert answer.status_code == 200, answer.text
