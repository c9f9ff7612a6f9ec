"""Items: what is refused, how they are kept, and the conversation they make."""

from typing import Any

import msgspec
import pytest

from backends.types import FunctionCall, ImagePart, ImageUrl, Message, TextPart, ToolCall
from gateway.errors import InvalidRequest
from gateway.schema.responses import ResponseRequest
from gateway.schema.responses_items import InputItem
from gateway.translate.body import Body
from gateway.translate.responses_items import decode_items, encode_items, to_items, to_messages

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "12"}


def items(*given: dict[str, Any]) -> tuple[InputItem, ...]:
    body = Body(ResponseRequest).decode(msgspec.json.encode({"input": given}))
    return to_items(body.input)


def kept(*given: dict[str, Any]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(item) for item in encode_items(items(*given))]


def test_a_text_is_one_user_message() -> None:
    (item,) = to_items("hello")
    assert to_messages([item]) == (Message(role="user", content="hello"),)
    assert item.id is not None
    assert item.id.startswith("msg_")


def test_messages_keep_their_roles_and_join_their_texts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    said = [{"type": "output_text", "text": "yes", "annotations": [{"x": 2**70}], "logprobs": []}]
    messages = to_messages(
        items(
            {"role": "system", "content": "s"},
            {"type": "message", "role": "developer", "content": parts},
            {"role": "user", "content": parts},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": said},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        )
    )
    assert [(message.role, message.content) for message in messages] == [
        ("system", "s"),
        ("developer", "ab"),
        ("user", "ab"),
        ("assistant", "yes"),
        ("assistant", "no"),
    ]


def test_a_turn_of_text_and_calls_is_one_message_and_reasoning_leaves_no_trace() -> None:
    second = CALL | {"call_id": "c2", "name": "g", "arguments": "{}"}
    messages = to_messages(
        items(
            {"role": "user", "content": "q"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"role": "assistant", "content": "wait"},
            CALL,
            second,
            OUTPUT,
            OUTPUT | {"call_id": "c2", "output": [{"type": "input_text", "text": "13"}]},
        )
    )
    calls = (ToolCall("c1", FunctionCall("f", "{")), ToolCall("c2", FunctionCall("g", "{}")))
    assert messages == (
        Message(role="user", content="q"),
        Message(role="assistant", content="wait", tool_calls=calls),
        Message(role="tool", content="12", tool_call_id="c1"),
        Message(role="tool", content="13", tool_call_id="c2"),
    )
    assert to_messages(items(CALL)) == (Message(role="assistant", tool_calls=calls[:1]),)


def test_images_go_to_the_backend_which_knows_whether_it_can_see() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
    (message,) = to_messages(items({"role": "user", "content": [{"type": "input_text", "text": "what?"}, image]}))
    assert message.content == (TextPart("what?"), ImagePart(ImageUrl("data:image/png;base64,AA", "low")))


def test_items_are_kept_complete_and_read_back_the_same() -> None:
    given = (
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "phase": None},
        CALL | {"parsed_arguments": {"x": 1}, "async_": None},
        OUTPUT,
        {"type": "reasoning", "encrypted_content": "x"},
    )
    user, assistant, call, output, reasoning = kept(*given)
    assert user == {
        "type": "message",
        "id": user["id"],
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_text", "text": "a"}],
    }
    assert assistant["content"][0]["annotations"] == []
    assert call == CALL | {"id": call["id"], "status": "completed"}
    assert output == OUTPUT | {"id": output["id"], "status": "completed"}
    assert reasoning == {"type": "reasoning", "id": reasoning["id"], "summary": [], "encrypted_content": "x"}
    prefixes = [item["id"].split("_")[0] for item in (user, assistant, call, output, reasoning)]
    assert prefixes == ["msg", "msg", "fc", "fco", "rs"]
    complete = items(*given)
    assert decode_items(encode_items(complete)) == complete


def test_ids_and_states_of_clients_are_kept() -> None:
    (item,) = kept({"type": "message", "id": "msg_7", "status": "incomplete", "role": "assistant", "content": "b"})
    assert (item["id"], item["status"]) == ("msg_7", "incomplete")


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"content": "a"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": []}, "input[0].content"),
        ({"role": "tool", "content": "a"}, "input[0].role"),
        ({"role": "user", "content": "a", "call_id": "c"}, "input[0].call_id"),
        ({"role": "user", "content": "a", "name": "bob"}, "input[0].name"),
        ({"role": "user", "content": "a", "colour": "red"}, "input[0].colour"),
        ({"role": "user", "content": [{"type": "refusal", "refusal": "no"}]}, "input[0].content[0].type"),
        ({"role": "system", "content": [{"type": "input_image", "image_url": "x"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "reasoning_text", "text": "x"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}, "input[0].content[0].file_id"),
        ({"type": "function_call", "call_id": "c", "name": "f"}, "input[0].arguments"),
        (CALL | {"output": "x"}, "input[0].output"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "item_reference", "id": "msg_1"}, "input[0].type"),
        ({"type": "computer_call", "id": "x"}, "input[0].type"),
        ({"type": "reasoning", "summary": [], "role": "user"}, "input[0].role"),
    ],
)
def test_wrong_items_are_refused_with_their_place(item: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        items(item)
    assert refused.value.param == param
    assert param in refused.value.message


def test_the_output_of_a_call_that_nobody_made_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="No function call has the call_id 'c1'"):
        to_messages(items(OUTPUT, CALL))
