"""The parameter table, the Structs, the documentation and the vocabulary agree."""

from pathlib import Path

import msgspec
import pytest

from backends.types import Chat, JsonObjectFormat, JsonSchemaFormat, Message, Sampling, ToolChoice
from gateway.schema import parameters
from gateway.schema.chat import ChatRequest
from gateway.schema.completions import CompletionRequest
from gateway.schema.embeddings import EmbeddingRequest
from gateway.schema.messages_api_parameters import COUNT_TOKENS, INSIDE, MESSAGES
from gateway.schema.parameters import CHAT, COMPLETIONS, EMBEDDINGS, Parameter
from gateway.schema.responses_parameters import RESPONSES
from gateway.translate.body import Body
from gateway.translate.chat import to_request
from gateway.translate.completions import to_requests

TABLES = [
    (ChatRequest, CHAT),
    (CompletionRequest, COMPLETIONS),
    (EmbeddingRequest, EMBEDDINGS),
]


@pytest.mark.parametrize(("struct", "table"), TABLES)
def test_the_table_has_every_field_once_and_refused_ones_are_typed_none(
    struct: type[msgspec.Struct], table: tuple[Parameter, ...]
) -> None:
    assert sorted(row.name for row in table) == sorted(struct.__struct_fields__)
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for row in table:
        assert (fields[row.name] in (None, type(None))) == (row.treatment == "refused"), row.name
        assert row.treatment == "honoured" or row.note


def test_the_table_names_every_parameter_of_the_sdk() -> None:
    from openai.types import completion_create_params, embedding_create_params
    from openai.types.chat import completion_create_params as chat_create_params

    for params, table in (
        (chat_create_params.CompletionCreateParamsBase, CHAT),
        (completion_create_params.CompletionCreateParamsBase, COMPLETIONS),
        (embedding_create_params.EmbeddingCreateParams, EMBEDDINGS),
    ):
        assert set(params.__annotations__) - {row.name for row in table} == set()


def test_the_documentation_holds_the_tables() -> None:
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
    for table in (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES, COUNT_TOKENS, INSIDE):
        assert parameters.render(table) in text


def chat(**fields: object) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields
    return Body(ChatRequest).decode(msgspec.json.encode(body))


def test_every_honoured_parameter_reaches_the_backend() -> None:
    body = chat(
        n=3,
        stop=["a", "", "b"],
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        frequency_penalty=0.25,
        presence_penalty=-0.25,
        repetition_penalty=1.25,
        seed=-5,
        logit_bias={"7": -100},
        ignore_eos=True,
        stop_token_ids=[2],
        max_completion_tokens=9,
        logprobs=True,
        top_logprobs=4,
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
        tools=[{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"a": 1}, "strict": True}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
        chat_template_kwargs={"x": 1},
        reasoning_effort="none",
    )
    request = to_request(body, request_id="i", model="m")
    assert request.sampling == Sampling(
        logit_bias={7: -100.0},
        repetition_penalty=1.25,
        frequency_penalty=0.25,
        presence_penalty=-0.25,
        temperature=0.5,
        top_k=40,
        top_p=0.9,
        min_p=0.1,
        seed=-5,
    )
    assert (request.n, request.stop, request.stop_token_ids, request.ignore_eos) == (3, ("a", "b"), (2,), True)
    assert (request.max_tokens, request.logprobs) == (9, 4)
    assert request.response_format == JsonSchemaFormat({"type": "object"}, "s")
    assert isinstance(request.prompt, Chat)
    assert request.prompt.tool_choice == ToolChoice("required", "f")
    assert request.prompt.parallel_tool_calls is False
    assert request.prompt.template_kwargs == {"enable_thinking": False, "x": 1}
    assert request.prompt.tools[0].function.parameters == {"a": 1}


def test_absent_parameters_mean_the_defaults_of_the_api() -> None:
    request = to_request(chat(), request_id="i", model="m")
    assert request.sampling == Sampling()
    assert (request.n, request.stop, request.max_tokens, request.logprobs, request.response_format) == (1, (), None, None, None)
    completion = Body(CompletionRequest).decode(b'{"prompt":"a"}')
    assert to_requests(completion, request_id="i", model="m")[0].max_tokens == 16
    assert to_request(chat(response_format={"type": "json_object"}), request_id="i", model="m").response_format == (
        JsonObjectFormat()
    )
    assert to_request(chat(logprobs=True), request_id="i", model="m").logprobs == 0


def test_messages_keep_their_roles_and_join_their_text_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    request = to_request(
        chat(
            messages=[
                {"role": "developer", "content": "d"},
                {"role": "user", "content": parts, "name": "bob"},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "content": parts, "tool_call_id": "c"},
                {"role": "assistant", "content": None, "refusal": "no"},
            ]
        ),
        request_id="i",
        model="m",
    )
    assert isinstance(request.prompt, Chat)
    developer, user, calling, tool, refusal = request.prompt.messages
    assert developer == Message(role="developer", content="d")
    assert (user.content, user.name) == ("ab", "bob")
    assert (calling.content, calling.tool_calls[0].function.arguments) == (None, "{")
    assert (tool.content, tool.tool_call_id) == ("ab", "c")
    assert refusal.content == "no"
    assert request.prompt.continue_final


def test_an_assistant_message_with_calls_at_the_end_is_not_continued() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    request = to_request(chat(messages=[{"role": "assistant", "tool_calls": [call]}]), request_id="i", model="m")
    assert isinstance(request.prompt, Chat)
    assert not request.prompt.continue_final
