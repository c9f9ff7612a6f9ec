"""Errors below /v1/messages have Anthropic's shape, whoever raises them, and name what is wrong."""

import json
import socket
from typing import Any

import httpx
import pytest

from gateway.anthropic_errors import anthropic_body, speaks_anthropic
from gateway.errors import ApiError, BodyTooLarge, InvalidRequest, NotReady, UnknownModel, UpstreamFailed, UpstreamTimedOut
from tests.gateway.messages.conftest import HI, TOOLS
from tests.gateway.wire.conftest import Gateway
from tests.gateway.wire.raw import read_until

PATH = "/v1/messages"


def refusal(answer: httpx.Response, status: int, kind: str) -> str:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    assert body["error"]["type"] == kind
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    message: str = body["error"]["message"]
    return message


BLOCK = {"type": "text", "text": "hi"}
SHOT = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
ANY_JSON = {"type": "json_schema", "schema": {}}
DEEP: Any = 1
for _ in range(70):
    DEEP = {"a": DEEP}


def user(*blocks: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def offer(**fields: object) -> dict[str, Any]:
    return {"tools": [{"name": "f", "input_schema": {}} | fields]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": ""}]}, "'messages[0].content' is empty"),
        (user(), "'messages[0].content' is empty"),
        ({"messages": [{"role": "assistant", "content": []}, *HI]}, "'messages[0].content' is empty"),
        (user({"type": "document", "source": {}}), "'document'"),
        (user({"type": "search_result"}), "'search_result'"),
        (user(CALL), "'tool_use'"),
        (user({"type": "thinking", "thinking": "x"}), "'thinking'"),
        ({"messages": [*HI, {"role": "assistant", "content": [{"type": "server_tool_use"}]}]}, "'server_tool_use'"),
        ({"messages": [*HI, {"role": "assistant", "content": [CALL | {"input": DEEP}]}]}, "messages[1].content[0].input"),
        (user({"type": "image", "source": {"type": "file", "file_id": "f"}}), "'file'"),
        (user(SHOT), "reads no images"),
        (user({"type": "tool_result", "tool_use_id": "c", "content": [SHOT]}), "reads no images"),
        (user(BLOCK | {"zz": 1}), "messages[0].content[0].zz"),
        ({"system": [SHOT]}, "system[0].type"),
        ({"zz": 1}, "'zz'"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "'thinking.type' does not support 'enabled'"),
        ({"thinking": {"type": "adaptive"}}, "'thinking.type' does not support 'adaptive'"),
        ({"speed": "fast"}, "'speed' does not support 'fast'"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"output_config": {"effort": "max"}}, "'output_config.effort' does not support 'max'"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"format": {"type": "json_schema", "schema": DEEP}}}, "nested deeper than 64"),
        ({"output_format": ANY_JSON, "output_config": {"format": ANY_JSON}}, "are the same: give one"),
        ({"container": "c"}, "'container' is not supported: no code is executed here."),
        ({"mcp_servers": []}, "'mcp_servers' is not supported"),
        (offer(type="bash_20250124"), "'tools[0].type' does not support 'bash_20250124'"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'tools[0].type'"),
        ({"tools": [{"name": "f"}]}, "'tools[0].input_schema'"),
        (offer(name="a b"), "tools[0].name"),
        (offer(input_schema=DEEP), "nested deeper than 64"),
        (offer(defer_loading=True), "tools[0].defer_loading"),
        (offer(allowed_callers=["direct", "code_execution_20250825"]), "'code_execution_20250825'"),
        (offer(input_examples=[{}]), "tools[0].input_examples"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "'weather' is given twice"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "nope"}}, "'nope'"),
        ({"tool_choice": {"type": "any"}}, "'tools' offers none"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(http: httpx.Client, change: dict[str, Any], words: str) -> None:
    body = {"model": "plain", "max_tokens": 5, "messages": HI} | change
    if body["max_tokens"] is None:
        del body["max_tokens"]
    assert words in refusal(http.post(PATH, json=body), 400, "invalid_request_error")


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"model":', b"\xff", b'{"a":NaN}', b"[" * 5000])
@pytest.mark.parametrize("path", [PATH, PATH + "/count_tokens"])
def test_bodies_that_are_no_request(http: httpx.Client, path: str, body: bytes) -> None:
    assert refusal(http.post(path, content=body), 400, "invalid_request_error")


def test_errors_from_around_the_routes_have_the_shape_too(http: httpx.Client) -> None:
    assert "/v1/messages/nope" in refusal(http.post(PATH + "/nope", json={}), 404, "not_found_error")
    refusal(http.get(PATH), 405, "invalid_request_error")
    packed = http.post(PATH, content=b"x", headers={"content-encoding": "gzip"})
    refusal(packed, 415, "invalid_request_error")
    unknown = http.post(PATH + "/count_tokens", json={"model": "nope", "messages": HI})
    assert "'nope'" in refusal(unknown, 404, "not_found_error")


def test_a_body_that_is_too_large_is_refused_in_the_shape(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {1 << 40}\r\nexpect: 100-continue\r\n\r\n"
        connection.sendall(head.encode())
        answer = read_until(connection, b'"request_id"')
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'\r\n\r\n{"type":"error","error":{"type":"request_too_large","message":' in answer


def test_other_paths_keep_the_shape_of_openai(http: httpx.Client) -> None:
    for path in ("/v1/chat/completions", "/v1/messagesx"):
        error = http.post(path, json={"model": "nope", "messages": HI}).json()["error"]
        assert set(error) == {"message", "type", "param", "code"}


class Refused(ApiError):
    def __init__(self, status: int) -> None:
        super().__init__("no")
        self.status = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequest("no"), "invalid_request_error"),
        (Refused(401), "authentication_error"),
        (Refused(402), "billing_error"),
        (Refused(403), "permission_error"),
        (UnknownModel("no"), "not_found_error"),
        (BodyTooLarge("no"), "request_too_large"),
        (Refused(429), "rate_limit_error"),
        (Refused(500), "api_error"),
        (UpstreamFailed("no"), "api_error"),
        (NotReady("no"), "overloaded_error"),
        (UpstreamTimedOut("no"), "timeout_error"),
        (Refused(529), "overloaded_error"),
    ],
)
def test_the_type_follows_from_the_status(error: ApiError, kind: str) -> None:
    expected = {"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_1"}
    assert json.loads(anthropic_body(error, "req_1")) == expected
    assert json.loads(anthropic_body(error, ""))["request_id"] is None


def test_which_paths_are_anthropics() -> None:
    assert [speaks_anthropic(path) for path in (PATH, PATH + "/", PATH + "/count_tokens")] == [True] * 3
    assert [speaks_anthropic(path) for path in ("/v1/messagesx", "/v1", "", "/v1/chat/completions")] == [False] * 4
