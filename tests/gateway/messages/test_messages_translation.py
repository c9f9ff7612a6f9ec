"""What a backend is asked, turn by turn and field by field."""

from typing import Any

import msgspec
import pytest

from backends.types import (
    Chat,
    Function,
    FunctionCall,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    JsonSchemaFormat,
    Message,
    Sampling,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from gateway.schema.messages_api import MessagesRequest
from gateway.translate.body import Body
from gateway.translate.messages_api import to_request

CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": [1, 2.5, "é"]}}


def request(*turns: dict[str, Any], **fields: Any) -> GenerateRequest:
    messages = list(turns) or [{"role": "user", "content": "hi"}]
    body = Body(MessagesRequest).decode(msgspec.json.encode({"max_tokens": 5, "messages": messages} | fields))
    return to_request(body, request_id="i", model="m", tenant="t")


def chat(*turns: dict[str, Any], **fields: Any) -> Chat:
    prompt = request(*turns, **fields).prompt
    assert isinstance(prompt, Chat)
    return prompt


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return user(*content) | {"role": "assistant"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "cache_control": {"type": "ephemeral", "ttl": "1h"}, "citations": None}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "c1", "content": content} | fields


def test_every_honoured_parameter_reaches_the_backend() -> None:
    asked = request(
        max_tokens=9,
        system=[text("a"), text("b")],
        stop_sequences=["x", "", "y"],
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        tools=[
            {"type": "custom", "name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True},
            {"name": "g", "input_schema": {}, "allowed_callers": ["direct"], "defer_loading": False},
        ],
        tool_choice={"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        thinking={"type": "disabled"},
        output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "high"},
        metadata={"user_id": "u"},
        service_tier="standard_only",
        speed="standard",
        cache_control={"type": "ephemeral"},
    )
    assert (asked.id, asked.model, asked.tenant, asked.max_tokens, asked.n) == ("i", "m", "t", 9, 1)
    assert asked.stop == ("x", "y")
    assert asked.sampling == Sampling(temperature=0.5, top_p=0.9, top_k=40)
    assert asked.response_format == JsonSchemaFormat({"type": "object"})
    assert asked.prompt == Chat(
        messages=(Message(role="system", content="ab"), Message(role="user", content="hi")),
        tools=(
            Tool(Function(name="f", description="d", parameters={"type": "object"}, strict=True)),
            Tool(Function(name="g", parameters={})),
        ),
        tool_choice=ToolChoice("required", "f"),
        parallel_tool_calls=False,
        template_kwargs={"enable_thinking": False},
    )


def test_absent_and_null_parameters_mean_the_defaults_of_the_api() -> None:
    asked = request(**dict.fromkeys(["system", "tools", "tool_choice", "temperature", "top_k", "stop_sequences", "container"]))
    assert asked == GenerateRequest(
        id="i", model="m", tenant="t", max_tokens=5, prompt=Chat(messages=(Message(role="user", content="hi"),))
    )


def test_the_older_name_of_the_output_format_means_the_same() -> None:
    schema = {"type": "json_schema", "schema": {"type": "array"}}
    assert request(output_format=schema).response_format == JsonSchemaFormat({"type": "array"})


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        (None, ToolChoice(), True),
        ({"type": "auto"}, ToolChoice(), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(), False),
        ({"type": "any", "disable_parallel_tool_use": False}, ToolChoice("required"), True),
        ({"type": "none"}, ToolChoice("none"), True),
    ],
)
def test_tool_choices(choice: object, expected: ToolChoice, parallel: bool) -> None:
    prompt = chat(tools=[{"name": "f", "input_schema": {}}], tool_choice=choice)
    assert (prompt.tool_choice, prompt.parallel_tool_calls) == (expected, parallel)


def test_results_of_tools_keep_their_place_among_texts() -> None:
    prompt = chat(
        user("go"),
        assistant(text("a"), CALL, {"type": "tool_use", "id": "c2", "name": "g", "input": {}}),
        user(text("1"), text("2"), result("r"), result([text("s"), text("t")]), text("3")),
    )
    calls = (ToolCall("c1", FunctionCall("f", '{"a":[1,2.5,"é"]}')), ToolCall("c2", FunctionCall("g", "{}")))
    assert prompt.messages == (
        Message(role="user", content="go"),
        Message(role="assistant", content="a", tool_calls=calls),
        Message(role="user", content="12"),
        Message(role="tool", content="r", tool_call_id="c1"),
        Message(role="tool", content="st", tool_call_id="c1"),
        Message(role="user", content="3"),
    )


def test_a_call_alone_has_no_content() -> None:
    message = chat(user("go"), assistant(CALL), user(result("r"))).messages[1]
    assert message.content is None
    assert message.tool_calls


def test_a_failed_tool_says_so_in_its_text() -> None:
    failed = user(result("no such city", is_error=True), result(None, is_error=True), result("fine", is_error=False))
    assert [message.content for message in chat(failed).messages] == ["Error: no such city", "Error: ", "fine"]


def test_images_stay_parts() -> None:
    embedded = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    look, said = chat(user(text("look"), embedded, result([linked], is_error=True))).messages
    assert look.content == (TextPart("look"), ImagePart(ImageUrl("data:image/png;base64,AA==")))
    assert said.content == (TextPart("Error: "), ImagePart(ImageUrl("https://x/y.png")))


def test_thoughts_of_earlier_turns_are_left_out() -> None:
    thoughts = [
        {"type": "thinking", "thinking": "secret", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
    ]
    prompt = chat(user("a"), assistant(*thoughts, text("b")), user("c"), assistant(*thoughts), user("d"))
    assert [(message.role, message.content) for message in prompt.messages] == [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c\n\nd"),
    ]


def test_turns_of_one_role_in_a_row_become_one() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "u"}}
    prompt = chat(user("a"), user(text("b")), assistant("c"), assistant(CALL), user(result("r")), user("d"), user(image))
    assert [(m.role, m.content, len(m.tool_calls)) for m in prompt.messages] == [
        ("user", "a\n\nb", 0),
        ("assistant", "c", 1),
        ("tool", "r", 0),
        ("user", (TextPart("d"), ImagePart(ImageUrl("u"))), 0),
    ]


def test_instructions_in_the_middle_stay_there() -> None:
    prompt = chat(user("a"), {"role": "system", "content": [text("b")]}, user("c"), system="s")
    assert [(message.role, message.content) for message in prompt.messages] == [
        ("system", "s"),
        ("user", "a"),
        ("system", "b"),
        ("user", "c"),
    ]


@pytest.mark.parametrize(
    ("last", "is_continued"),
    [(assistant("The answer is ("), True), (assistant(""), True), (assistant(text("x"), CALL), False), (user("x"), False)],
)
def test_a_last_turn_of_the_assistant_is_continued(last: dict[str, Any], is_continued: bool) -> None:
    assert chat(user("a"), last).continue_final == is_continued
