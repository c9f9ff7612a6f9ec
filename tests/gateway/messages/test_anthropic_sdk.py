"""Anthropic's official Python SDK as the judge of the wire."""

import anthropic
import pytest
from pydantic import BaseModel

from tests.gateway.messages.conftest import HI, TEXT, TOOLS, Recorder


def test_create_answers_whole(sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.create(model="plain", max_tokens=100, messages=HI)
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "plain")
    assert answer.id.startswith("msg_")
    assert [(block.type, block.text) for block in answer.content] == [("text", TEXT)]
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.usage.input_tokens == len("user: hi\nassistant:")
    assert answer.usage.output_tokens == len(TEXT.encode())
    assert (answer.usage.cache_read_input_tokens, answer.usage.cache_creation_input_tokens) == (0, 0)


def test_the_answer_names_its_request_in_the_header_that_the_sdk_reads(sdk: anthropic.Anthropic) -> None:
    raw = sdk.messages.with_raw_response.create(model="plain", max_tokens=1, messages=HI)
    assert raw.headers["request-id"] == raw.headers["x-request-id"]
    assert raw.headers["request-id"].startswith("req_")


def test_a_stream_accumulates_to_the_same_message(sdk: anthropic.Anthropic) -> None:
    whole = sdk.messages.create(model="plain", max_tokens=100, messages=HI)
    with sdk.messages.stream(model="plain", max_tokens=100, messages=HI) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == TEXT
    assert final.content[0].text == TEXT
    assert (final.stop_reason, final.stop_sequence, final.role) == ("end_turn", None, "assistant")
    assert final.usage == whole.usage
    assert stream.request_id


def test_raw_events_come_in_order(sdk: anthropic.Anthropic) -> None:
    events = [event.type for event in sdk.messages.create(model="plain", max_tokens=2, messages=HI, stream=True)]
    assert events == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_budget_and_stop_sequences_end_an_answer_and_say_so(sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.create(model="plain", max_tokens=3, messages=HI)
    assert (answer.content[0].text, answer.stop_reason) == ("Hel", "max_tokens")
    stops = ["nowhere", "", ", 世", "界"]
    answer = sdk.messages.create(model="plain", max_tokens=100, messages=HI, stop_sequences=stops)
    assert (answer.content[0].text, answer.stop_reason, answer.stop_sequence) == ("Hello", "stop_sequence", ", 世")
    with sdk.messages.stream(model="plain", max_tokens=100, messages=HI, stop_sequences=stops) as stream:
        final = stream.get_final_message()
    assert (final.content[0].text, final.stop_reason, final.stop_sequence) == ("Hello", "stop_sequence", ", 世")
    answer = sdk.messages.create(model="plain", max_tokens=100, messages=HI, stop_sequences=["nowhere"])
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)


def test_tools_are_called_and_their_results_read(sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.create(model="tools", max_tokens=500, messages=HI, tools=TOOLS)
    assert answer.stop_reason == "tool_use"
    text, weather, clock = answer.content
    assert text.text == "Let me see."
    assert (weather.type, weather.name, weather.input) == (
        "tool_use",
        "weather",
        {"city": "Köln", "days": 12345678901234567890},
    )
    assert (clock.name, clock.input) == ("clock", {})
    assert weather.id != clock.id
    weather.input["days"] = 3
    results = [
        {"type": "tool_result", "tool_use_id": weather.id, "content": [{"type": "text", "text": "rain"}]},
        {"type": "tool_result", "tool_use_id": clock.id, "content": "no clock", "is_error": True},
    ]
    history = [*HI, answer.to_param(), {"role": "user", "content": results}]
    again = sdk.messages.create(model="tools", max_tokens=500, messages=history, tools=TOOLS)
    assert (again.content[0].text, again.stop_reason) == ("Done.", "end_turn")


def test_a_stream_accumulates_the_same_calls(sdk: anthropic.Anthropic) -> None:
    with sdk.messages.stream(model="tools", max_tokens=500, messages=HI, tools=TOOLS) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["text", "tool_use", "tool_use"]
    assert [block.input for block in final.content[1:]] == [{"city": "Köln", "days": 12345678901234567890}, {}]
    assert final.stop_reason == "tool_use"


def test_tool_choice_is_obeyed(sdk: anthropic.Anthropic) -> None:
    def called(choice: dict[str, object]) -> list[str]:
        answer = sdk.messages.create(model="tools", max_tokens=500, messages=HI, tools=TOOLS, tool_choice=choice)
        return [block.name for block in answer.content if block.type == "tool_use"]

    assert called({"type": "auto"}) == ["weather", "clock"]
    assert called({"type": "any"}) == ["weather", "clock"]
    assert called({"type": "any", "disable_parallel_tool_use": True}) == ["weather"]
    assert called({"type": "tool", "name": "clock"}) == ["clock"]
    assert called({"type": "none"}) == []


def test_input_that_is_no_object_is_kept_as_text(sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.create(model="malformed", max_tokens=500, messages=HI, tools=TOOLS)
    assert [block.input for block in answer.content] == [{"INVALID_JSON": '{"city": "Kö'}, {"INVALID_JSON": "[1]"}]


class Person(BaseModel):
    name: str
    age: int


def test_parse_with_a_pydantic_model_and_its_message_sent_back(sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.parse(model="json", max_tokens=100, messages=HI, output_format=Person)
    assert answer.parsed_output == Person(name="Ada", age=36)
    again = sdk.messages.create(model="json", max_tokens=100, messages=[*HI, answer.to_param(), *HI])
    assert again.stop_reason == "end_turn"


def test_thoughts_are_shown_and_may_come_back(sdk: anthropic.Anthropic, recorder: Recorder) -> None:
    answer = sdk.messages.create(model="recorder", max_tokens=100, messages=HI)
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert (answer.content[0].thinking, answer.content[1].text) == ("Hm, well.", "Yes.")
    with sdk.messages.stream(model="recorder", max_tokens=100, messages=HI) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]
    assert (final.content[0].thinking, final.content[1].text) == ("Hm, well.", "Yes.")
    sdk.messages.create(model="recorder", max_tokens=100, messages=[*HI, final.to_param(), *HI])
    assert [message.text for message in recorder.asked[-1].prompt.messages] == ["hi", "Yes.", "hi"]


def test_cached_tokens_are_counted_apart_from_computed_ones(sdk: anthropic.Anthropic) -> None:
    usage = sdk.messages.create(model="recorder", max_tokens=100, messages=HI).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (len("user: hi\nassistant:") - 5, 5)
    with sdk.messages.stream(model="recorder", max_tokens=100, messages=HI) as stream:
        assert stream.get_final_message().usage == usage


def test_count_tokens_counts_the_prompt_that_an_answer_would_begin_from(sdk: anthropic.Anthropic, recorder: Recorder) -> None:
    prompt = {"system": "Be brief.", "messages": [*HI, {"role": "assistant", "content": "Well"}], "tools": TOOLS}
    count = sdk.messages.count_tokens(model="recorder", **prompt)
    answer = sdk.messages.create(model="recorder", max_tokens=1, **prompt)
    assert count.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    counted, asked = recorder.asked
    assert counted.prompt == asked.prompt
    assert counted.add_special is False


def test_the_beta_client_speaks_the_same(sdk: anthropic.Anthropic) -> None:
    answer = sdk.beta.messages.create(model="plain", max_tokens=100, messages=HI, betas=["interleaved-thinking-2025-05-14"])
    assert answer.content[0].text == TEXT
    assert sdk.beta.messages.count_tokens(model="plain", messages=HI).input_tokens == answer.usage.input_tokens


def test_an_empty_answer_has_no_blocks(sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.create(model="silent", max_tokens=10, messages=HI)
    assert (answer.content, answer.stop_reason) == ([], "end_turn")
    with sdk.messages.stream(model="silent", max_tokens=10, messages=HI) as stream:
        assert stream.get_final_message().content == []


@pytest.mark.parametrize(
    ("model", "error", "kind"),
    [
        ("nope", anthropic.NotFoundError, "not_found_error"),
        ("small", anthropic.BadRequestError, "invalid_request_error"),
        ("full", anthropic.InternalServerError, "overloaded_error"),
        ("failed-first", anthropic.InternalServerError, "api_error"),
        ("timed-out", anthropic.InternalServerError, "timeout_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_are_real_statuses_before_a_stream_begins(
    sdk: anthropic.Anthropic, model: str, error: type[anthropic.APIStatusError], kind: str, stream: bool
) -> None:
    long = [{"role": "user", "content": "x" * 100}]
    with pytest.raises(error) as caught:
        sdk.messages.create(model=model, max_tokens=10, messages=long, stream=stream)
    assert caught.value.type == kind
    assert caught.value.api_message
    assert caught.value.request_id == caught.value.body["request_id"]


def test_an_error_in_the_middle_of_a_stream_is_an_event(sdk: anthropic.Anthropic) -> None:
    with (
        pytest.raises(anthropic.APIStatusError) as caught,
        sdk.messages.stream(model="failed-later", max_tokens=10, messages=HI) as stream,
    ):
        stream.until_done()
    assert caught.value.body["error"]["type"] == "api_error"
    assert "The script says Failed." in str(caught.value)
