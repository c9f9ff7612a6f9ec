"""The official Python SDK as the judge of the wire."""

import time

import openai
import pytest
from pydantic import BaseModel

from tests.gateway.responses.conftest import Recorder

TOOLS = [
    {
        "type": "function",
        "name": name,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": False,
    }
    for name in ("weather", "clock")
]


def test_create_answers_whole(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(model="plain", input="hi", instructions="be kind", metadata={"a": "b"}, user="u")
    assert answer.output_text == "Hello, 世界!"
    assert answer.id.startswith("resp_")
    assert (answer.object, answer.status, answer.model, answer.error) == ("response", "completed", "plain", None)
    (message,) = answer.output
    assert message.type == "message"
    assert message.id.startswith("msg_")
    assert (message.role, message.status) == ("assistant", "completed")
    assert message.content[0].to_dict() == {
        "type": "output_text",
        "text": "Hello, 世界!",
        "annotations": [],
        "logprobs": [],
    }
    assert answer.instructions == "be kind"
    assert (answer.metadata, answer.user, answer.temperature, answer.top_p) == ({"a": "b"}, "u", 1.0, 1.0)
    assert answer.usage.input_tokens_details.cached_tokens == 0
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.completed_at >= answer.created_at
    assert abs(answer.created_at - time.time()) < 60


def test_a_stream_says_the_same_as_create(sdk: openai.OpenAI) -> None:
    events = list(sdk.responses.create(model="plain", input="hi", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello, 世界!"
    final = events[-1]
    assert final.type == "response.completed"
    assert final.response.id == events[0].response.id
    assert sdk.responses.retrieve(final.response.id) == final.response


def test_the_stream_helper_puts_the_response_together(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model="tools", input="hi", tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert final.output_text == "Let me see."
    calls = [item for item in final.output if item.type == "function_call"]
    assert [(call.name, call.arguments) for call in calls] == [("weather", '{"city": "Köln"}'), ("clock", "{}")]


def test_parse_gives_an_object(sdk: openai.OpenAI) -> None:
    class Person(BaseModel):
        name: str
        age: int

    answer = sdk.responses.parse(model="json", input="who?", text_format=Person)
    assert answer.output_parsed == Person(name="Ada", age=36)
    assert answer.text.format.type == "json_schema"
    with sdk.responses.stream(model="json", input="who?", text_format=Person) as stream:
        assert stream.get_final_response().output_parsed == Person(name="Ada", age=36)
    again = sdk.responses.create(model="json", input=[{"role": "user", "content": "who?"}, *answer.output])
    assert again.status == "completed"


@pytest.mark.parametrize("dump", ["objects", "dicts"])
def test_calls_then_their_outputs(sdk: openai.OpenAI, dump: str) -> None:
    first = sdk.responses.create(model="tools", input="hi", tools=TOOLS)
    calls = [item for item in first.output if item.type == "function_call"]
    assert all(call.call_id.startswith("call_") and call.id.startswith("fc_") for call in calls)
    said = first.output if dump == "objects" else [item.model_dump() for item in first.output]
    outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "12"} for call in calls]
    second = sdk.responses.create(model="tools", input=[{"role": "user", "content": "hi"}, *said, *outputs], tools=TOOLS)
    assert second.output_text == "Done."


def test_a_forced_call_of_one_function(sdk: openai.OpenAI) -> None:
    choice = {"type": "function", "name": "clock"}
    answer = sdk.responses.create(model="plain", input="hi", tools=TOOLS, tool_choice=choice)
    assert [item.name for item in answer.output if item.type == "function_call"] == ["clock"]
    assert answer.tool_choice.name == "clock"
    assert [tool.name for tool in answer.tools] == ["weather", "clock"]


def test_previous_responses_are_continued(sdk: openai.OpenAI, recorder: Recorder) -> None:
    first = sdk.responses.create(model="recorder", input="one", instructions="be brief")
    second = sdk.responses.create(model="recorder", input="two", previous_response_id=first.id)
    third = sdk.responses.create(model="recorder", input="three", previous_response_id=second.id, stream=True)
    list(third)
    assert [[(m.role, m.text) for m in request.prompt.messages] for request in recorder.asked] == [
        [("system", "be brief"), ("user", "one")],
        [("user", "one"), ("assistant", "Yes."), ("user", "two")],
        [("user", "one"), ("assistant", "Yes."), ("user", "two"), ("assistant", "Yes."), ("user", "three")],
    ]
    assert second.previous_response_id == first.id
    reasoning = first.output[0]
    assert reasoning.type == "reasoning"
    assert reasoning.content[0].text == "Hm."


def test_call_outputs_alone_continue_a_stored_response(sdk: openai.OpenAI) -> None:
    first = sdk.responses.create(model="tools", input="hi", tools=TOOLS)
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "12"}
        for item in first.output
        if item.type == "function_call"
    ]
    second = sdk.responses.create(model="tools", input=outputs, previous_response_id=first.id, tools=TOOLS)
    assert second.output_text == "Done."


def test_log_probabilities_when_included(sdk: openai.OpenAI) -> None:
    include = ["message.output_text.logprobs"]
    answer = sdk.responses.create(model="plain", input="hi", include=include, top_logprobs=2)
    logprobs = answer.output[0].content[0].logprobs
    assert "".join(token.token for token in logprobs[:5]) == "Hello"
    assert [len(token.top_logprobs) for token in logprobs[:2]] == [2, 2]
    events = list(sdk.responses.create(model="plain", input="hi", include=include, stream=True))
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert deltas[0].logprobs[0].token == "H"


def test_a_short_answer_is_incomplete(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(model="plain", input="hi", max_output_tokens=5)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (answer.output_text, answer.output[0].status, answer.max_output_tokens) == ("Hello", "incomplete", 5)
    events = list(sdk.responses.create(model="plain", input="hi", max_output_tokens=5, stream=True))
    assert events[-1].type == "response.incomplete"


def test_errors_have_status_and_param(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        sdk.responses.create(model="nobody", input="hi")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as overflow:
        sdk.responses.create(model="small", input="x" * 100)
    assert (overflow.value.code, overflow.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.BadRequestError) as overflow:
        sdk.responses.create(model="small", input="x" * 100, stream=True)
    assert overflow.value.code == "context_length_exceeded"
    image = [{"type": "input_image", "image_url": "https://example.com/a.png"}]
    with pytest.raises(openai.BadRequestError) as blind:
        sdk.responses.create(model="plain", input=[{"role": "user", "content": image}])
    assert blind.value.param == "input"
    with pytest.raises(openai.InternalServerError) as full:
        sdk.responses.create(model="full", input="hi")
    assert full.value.status_code == 503


def test_what_breaks_in_the_middle_of_a_stream_is_raised(sdk: openai.OpenAI) -> None:
    seen = []
    with pytest.raises(openai.APIError, match="The engine broke") as broken:
        seen += list(sdk.responses.create(model="breaks", input="hi", stream=True))
    assert broken.value.code == "engine_failed"
