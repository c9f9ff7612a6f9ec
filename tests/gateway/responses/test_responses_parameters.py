"""The parameter table, the Struct and the vocabulary agree; what cannot be honoured is refused by name."""

from typing import Any

import msgspec
import pytest
from openai.types.responses import response_create_params

from backends.types import Chat, JsonObjectFormat, JsonSchemaFormat, Message, Sampling, ToolChoice
from gateway.errors import InvalidRequest
from gateway.schema.responses import ResponseRequest
from gateway.schema.responses_parameters import RESPONSES
from gateway.translate.body import Body
from gateway.translate.responses import check, to_object, to_request
from gateway.translate.responses_items import to_items

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOLS = [{"type": "function", "name": name, "description": "d", "parameters": SCHEMA, "strict": True} for name in ("f", "g")]


def decode(**fields: Any) -> ResponseRequest:
    body = Body(ResponseRequest, RESPONSES).decode(msgspec.json.encode({"model": "m", "input": "hi"} | fields))
    check(body)
    return body


def chat_of(body: ResponseRequest) -> Chat:
    prompt = to_request(body, to_items(body.input), request_id="i", model="m").prompt
    assert isinstance(prompt, Chat)
    return prompt


def refusal(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        chat_of(decode(**fields))
    return refused.value


def test_the_table_has_every_field_once_and_refused_ones_are_typed_none() -> None:
    assert sorted(row.name for row in RESPONSES) == sorted(ResponseRequest.__struct_fields__)
    fields = {field.name: field.type for field in msgspec.structs.fields(ResponseRequest)}
    for row in RESPONSES:
        assert (fields[row.name] in (None, type(None))) == (row.treatment == "refused"), row.name
        assert row.treatment == "honoured" or row.note


def test_the_table_names_every_parameter_of_the_sdk() -> None:
    names = {row.name for row in RESPONSES}
    assert set(response_create_params.ResponseCreateParamsBase.__annotations__) - names == set()


def test_every_honoured_parameter_reaches_the_backend() -> None:
    body = decode(
        instructions="be brief",
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        presence_penalty=0.25,
        frequency_penalty=-0.25,
        top_logprobs=4,
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        tools=TOOLS,
        tool_choice={"type": "function", "name": "g"},
        parallel_tool_calls=False,
        text={"format": {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}, "verbosity": "medium"},
        reasoning={"effort": "none", "summary": "auto"},
    )
    request = to_request(body, to_items(body.input), request_id="i", model="m", tenant="t")
    assert (request.id, request.model, request.tenant, request.max_tokens, request.logprobs) == ("i", "m", "t", 9, 4)
    assert request.sampling == Sampling(temperature=0.5, top_p=0.9, presence_penalty=0.25, frequency_penalty=-0.25)
    assert request.response_format == JsonSchemaFormat(SCHEMA, "s")
    chat = request.prompt
    assert isinstance(chat, Chat)
    assert chat.messages == (Message(role="system", content="be brief"), Message(role="user", content="hi"))
    assert [(tool.function.name, tool.function.parameters, tool.function.strict) for tool in chat.tools] == [
        ("f", SCHEMA, True),
        ("g", SCHEMA, True),
    ]
    assert chat.tool_choice == ToolChoice("required", "g")
    assert chat.parallel_tool_calls is False
    assert chat.template_kwargs == {"enable_thinking": False}


def test_absent_parameters_and_nulls_mean_the_defaults_of_the_api() -> None:
    nulls = {row.name: None for row in RESPONSES if row.name not in ("model", "input")}
    for body in (decode(), decode(**nulls)):
        request = to_request(body, to_items(body.input), request_id="i", model="m")
        assert request.sampling == Sampling()
        assert (request.n, request.max_tokens, request.logprobs, request.response_format) == (1, None, None, None)
        blank = to_object(body, response_id="resp_1", model="m")
        assert (blank.store, blank.temperature, blank.top_p, blank.parallel_tool_calls) == (True, 1.0, 1.0, True)
        assert (blank.tool_choice, blank.tools, blank.truncation, blank.metadata) == ("auto", [], "disabled", {})


def test_text_formats_and_allowed_tools() -> None:
    body = decode(text={"format": {"type": "json_object"}})
    assert to_request(body, to_items("a"), request_id="i", model="m").response_format == JsonObjectFormat()
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    chat = chat_of(decode(tools=TOOLS, tool_choice=allowed))
    assert [tool.function.name for tool in chat.tools] == ["g"]
    assert chat.tool_choice == ToolChoice("required")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "previous_response_id"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "x"}, "tools": TOOLS}, "tool_choice"),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "x"}]}, "tools": TOOLS},
            "tool_choice",
        ),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 2.5}, "temperature"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"seed": 1}, "seed"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    refused = refusal(**fields)
    assert (refused.status, refused.param) == (400, param)
    assert param.split("[")[0].split(".")[0] in refused.message


def test_schemas_are_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"a": deep}
    assert refusal(tools=[{"type": "function", "name": "f", "parameters": deep}]).param == "tools[0].parameters"
    text_format = {"type": "json_schema", "name": "n", "schema": deep}
    assert refusal(text={"format": text_format}).param == "text.format.schema"
