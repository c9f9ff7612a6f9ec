"""OpenAI's SDK for Python against the real model."""

import json

import openai
import pytest
from pydantic import BaseModel, Field

from tests.e2e.gateway_process import HI, MODEL, Server, eventually

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


class City(BaseModel):
    name: str = Field(max_length=12)
    population: int = Field(ge=0, le=99_999_999)


def test_whole_and_streamed_answers_are_the_same(client: openai.OpenAI) -> None:
    options = {"model": MODEL, "messages": HI, "max_tokens": 12, "temperature": 0}
    answer = client.chat.completions.create(**options)
    assert answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == answer.choices[0].message.content
    assert len(chunks) > 4, "the answer came in one piece"
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens


def test_stream_helper_accumulates_the_answer(client: openai.OpenAI) -> None:
    # The helper refuses an answer that was cut by max_tokens; hardly any text does without a vowel.
    vowels = {"max_tokens": 24, "temperature": 0, "stop": ["a", "e", "i", "o"]}
    with client.chat.completions.stream(model=MODEL, messages=HI, **vowels) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"


def test_named_tool_is_called_and_its_result_is_answered(client: openai.OpenAI) -> None:
    chosen = {"type": "function", "function": {"name": "get_weather"}}
    options = {"model": MODEL, "tools": [WEATHER, CLOCK], "max_tokens": 60, "temperature": 0, "parallel_tool_calls": False}
    answer = client.chat.completions.create(messages=QUESTION, tool_choice=chosen, **options)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    assert [call.function.name for call in message.tool_calls] == ["get_weather"]
    assert list(json.loads(message.tool_calls[0].function.arguments)) == ["city"]
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "14 degrees and rain"}
    after = client.chat.completions.create(messages=[*QUESTION, message, result], tool_choice="none", **options)
    assert after.choices[0].message.content
    assert after.choices[0].message.tool_calls is None


def test_required_tool_call_streams_like_the_whole_answer(client: openai.OpenAI) -> None:
    options = {"messages": QUESTION, "tools": [WEATHER], "max_tokens": 60, "temperature": 0, "parallel_tool_calls": False}
    whole = client.chat.completions.create(model=MODEL, tool_choice="required", **options)
    with client.chat.completions.stream(model=MODEL, tool_choice="required", **options) as stream:
        final = stream.get_final_completion()
    called, streamed = (
        [(call.function.name, call.function.arguments) for call in answer.choices[0].message.tool_calls]
        for answer in (whole, final)
    )
    assert called == streamed
    assert final.choices[0].finish_reason == "tool_calls"


def test_parse_fills_a_pydantic_model(client: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "Describe Paris."}]
    answer = client.chat.completions.parse(model=MODEL, messages=question, response_format=City, max_tokens=60, temperature=0)
    assert isinstance(answer.choices[0].message.parsed, City)


def test_json_mode_answers_with_an_object(client: openai.OpenAI) -> None:
    question = [{"role": "user", "content": 'Answer with {"ok": true} and nothing else.'}]
    answer = client.chat.completions.create(
        model=MODEL, messages=question, response_format={"type": "json_object"}, max_tokens=120, temperature=0
    )
    choice = answer.choices[0]
    assert choice.message.content.lstrip().startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)


def test_logprobs_spell_the_answer_and_contain_the_chosen_token(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=HI, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in content).decode() == answer.choices[0].message.content
    for token in content:
        assert -9999 <= token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].bytes == token.bytes, "greedy took another token than the likeliest"


def test_two_choices_differ_and_the_prompt_is_counted_once(client: openai.OpenAI) -> None:
    # A system message of its own: that of the template is in the prefix cache from other tests.
    question = [{"role": "system", "content": "You invent strange words, number 7431."}, *HI]
    answer = client.chat.completions.create(model=MODEL, messages=question, n=2, max_tokens=12, temperature=1.5, seed=3)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].message.content != answer.choices[1].message.content
    assert answer.usage.completion_tokens <= 24
    # The second choice shares the prompt that the first one computed; computed it was.
    assert answer.usage.prompt_tokens_details.cached_tokens < answer.usage.prompt_tokens // 2


def test_a_seed_repeats_an_answer_and_another_seed_does_not(client: openai.OpenAI) -> None:
    def ask(seed: int) -> str:
        answer = client.chat.completions.create(model=MODEL, messages=HI, max_tokens=16, temperature=1.2, seed=seed)
        return answer.choices[0].message.content

    assert ask(11) == ask(11)
    assert len({ask(11), ask(12), ask(13)}) > 1


def test_stop_string_cuts_the_answer_where_it_begins(client: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "Count: one, two, three, four, five, six."}]
    options = {"model": MODEL, "messages": question, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**options).choices[0].message.content
    middle = len(whole) // 2
    stop = whole[middle : middle + 5]
    for stream in (False, True):
        answer = client.chat.completions.create(**options, stop=[stop, "\n\nUser:"], stream=stream)
        if stream:
            chunks = [chunk.choices[0] for chunk in answer]
            text, finish = "".join(chunk.delta.content or "" for chunk in chunks), chunks[-1].finish_reason
        else:
            text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert (text, finish) == (whole[: whole.index(stop)], "stop")


def test_embeddings_come_as_base64_by_default_and_mean_the_same_as_floats(client: openai.OpenAI) -> None:
    texts = ["a cat", "a kitten", "tax law"]
    default = client.embeddings.create(model=MODEL, input=texts)
    floats = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    for one, other in zip(default.data, floats.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-4)
        assert sum(x * x for x in one.embedding) == pytest.approx(1, abs=1e-3)
    assert default.data[0].embedding != default.data[2].embedding


def test_completions_echo_and_score_a_prompt(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="The sky is", echo=True, max_tokens=0, logprobs=1)
    assert answer.choices[0].text == "The sky is"
    scores = answer.choices[0].logprobs.token_logprobs
    assert scores[0] is None
    assert all(score <= 0 for score in scores[1:])
    assert answer.usage.completion_tokens == 0


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).max_model_len == 4096


def test_errors_are_the_sdks_own_and_carry_the_request_id(client: openai.OpenAI, server: Server) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=HI, temperature=9)
    assert refused.value.param == "temperature"
    eventually(lambda: refused.value.request_id in server.log(), "the line of the request is written")
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nope", messages=HI, stream=True)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 9000}], stream=True)
    assert too_long.value.code == "context_length_exceeded"
