"""OpenAI's SDK for Python through the whole gateway: the same answers from a model that is here and from one behind another."""

from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from tests.integration.conftest import TEXT, Stack

HI = [{"role": "user", "content": "hi"}]
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": WEATHER}]


class Person(BaseModel):
    name: str
    age: int


class Place(BaseModel):
    city: Literal["Bonn", "Paris"]


def test_chat(openai_client: openai.OpenAI, place: str) -> None:
    answer = openai_client.chat.completions.create(model=f"{place}plain", messages=HI)
    assert answer.choices[0].message.content == TEXT
    assert (answer.model, answer.choices[0].finish_reason) == (f"{place}plain", "stop")
    assert answer.usage.completion_tokens == len(TEXT.encode())
    assert answer._request_id


def test_stream(openai_client: openai.OpenAI, place: str) -> None:
    options = {"model": f"{place}plain", "messages": HI, "stream_options": {"include_usage": True}}
    chunks = list(openai_client.chat.completions.create(stream=True, **options))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT
    assert {chunk.model for chunk in chunks} == {f"{place}plain"}
    assert chunks[-1].usage.completion_tokens == len(TEXT.encode())
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_tool_call_and_its_result(openai_client: openai.OpenAI, place: str, streams: bool) -> None:
    completions, model = openai_client.chat.completions, f"{place}tools"
    if streams:
        with completions.stream(model=model, messages=HI, tools=TOOLS) as stream:
            answer = stream.get_final_completion()
    else:
        answer = completions.create(model=model, messages=HI, tools=TOOLS)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Köln"}')
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    messages = [*HI, message.model_dump(exclude_none=True), result]
    after = completions.create(model=model, messages=messages, tools=TOOLS)
    assert after.choices[0].message.content == "It rains."


def test_parse(openai_client: openai.OpenAI, place: str) -> None:
    completions = openai_client.chat.completions
    answer = completions.parse(model=f"{place}json", messages=HI, response_format=Person)
    assert answer.choices[0].message.parsed == Person(name="Ada", age=36)
    with completions.stream(model=f"{place}json", messages=HI, response_format=Person) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == Person(name="Ada", age=36)


def test_responses(openai_client: openai.OpenAI, place: str) -> None:
    responses, model = openai_client.responses, f"{place}plain"
    answer = responses.create(model=model, input="hi")
    assert (answer.output_text, answer.status, answer.model) == (TEXT, "completed", model)
    with responses.stream(model=model, input="hi", previous_response_id=answer.id) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert (text, final.output_text, final.previous_response_id) == (TEXT, TEXT, answer.id)
    assert final.usage.input_tokens > answer.usage.input_tokens
    responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        responses.retrieve(answer.id)


def test_responses_tool_call_and_its_result(openai_client: openai.OpenAI, place: str) -> None:
    responses, model = openai_client.responses, f"{place}tools"
    tools = [{"type": "function", "strict": False} | WEATHER]
    answer = responses.create(model=model, input="hi", tools=tools)
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert (call.name, call.arguments) == ("weather", '{"city": "Köln"}')
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    after = responses.create(model=model, input=[result], tools=tools, previous_response_id=answer.id)
    assert after.output_text == "It rains."


def test_embeddings(openai_client: openai.OpenAI, place: str) -> None:
    answer = openai_client.embeddings.create(model=f"{place}plain", input=["a cat", "tax law"])
    assert answer.model == f"{place}plain"
    assert [len(item.embedding) for item in answer.data] == [16, 16]
    assert answer.data[0].embedding != answer.data[1].embedding
    assert sum(x * x for x in answer.data[0].embedding) == pytest.approx(1)


def test_wrong_requests_are_the_sdk_s_own_errors(openai_client: openai.OpenAI, stack: Stack, place: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model=f"{place}plain", messages=HI, temperature=9)
    assert refused.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model=f"{place}plain", messages=[{"role": "user", "content": "x" * 9000}])
    assert refused.value.code == "context_length_exceeded"
    with stack.server.openai("bob") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_embedded_model_and_llama_server_keep_to_a_schema(openai_client: openai.OpenAI, stack: Stack) -> None:
    for model in ("smol", *(["llama"] if stack.llama else [])):
        answer = openai_client.chat.completions.parse(
            model=model, messages=HI, response_format=Place, max_tokens=60, temperature=0
        )
        assert answer.choices[0].message.parsed.city in ("Bonn", "Paris"), model
