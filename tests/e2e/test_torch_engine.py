"""The torch engine through the HTTP API, as OpenAI's SDK for Python and a killer of processes see it."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.conftest import TORCH_CONTEXT
from tests.e2e.gateway_process import HI, MODEL, Server, begin_story, eventually, read_to_end

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "population": {"type": "integer", "minimum": 0, "maximum": 99999},
    },
    "required": ["name", "population"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def sdk(torch_server: Server) -> Iterator[openai.OpenAI]:
    with torch_server.openai() as client:
        yield client


def chat(sdk: openai.OpenAI, **options: Any) -> Any:
    return sdk.chat.completions.create(**{"model": MODEL, "messages": HI, "max_tokens": 12, "temperature": 0} | options)


def text_of(answer: Any) -> str:
    return answer.choices[0].message.content


def test_whole_and_streamed_answers_are_the_same(sdk: openai.OpenAI) -> None:
    whole = chat(sdk)
    assert text_of(whole)
    chunks = list(chat(sdk, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text_of(whole)
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_required_tool_call_streams_like_the_whole_answer(sdk: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    options = {"messages": question, "tools": [WEATHER], "max_tokens": 60, "temperature": 0, "parallel_tool_calls": False}
    whole = sdk.chat.completions.create(model=MODEL, tool_choice="required", **options)
    with sdk.chat.completions.stream(model=MODEL, tool_choice="required", **options) as stream:
        final = stream.get_final_completion()
    assert {answer.choices[0].finish_reason for answer in (whole, final)} == {"tool_calls"}
    called, streamed = (
        [(call.function.name, call.function.arguments) for call in answer.choices[0].message.tool_calls]
        for answer in (whole, final)
    )
    assert called == streamed
    [(name, arguments)] = called
    assert name == "get_weather"
    assert list(json.loads(arguments)) == ["city"]


def test_schema_holds_whatever_the_temperature(sdk: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
    answer = chat(sdk, response_format=form, n=2, max_tokens=60, temperature=1.5, seed=1)
    for choice in answer.choices:
        city = json.loads(choice.message.content)
        assert list(city) == ["name", "population"]
        assert 0 <= city["population"] <= 99999


def test_choices_differ_and_the_prompt_is_computed_once(sdk: openai.OpenAI, torch_server: Server) -> None:
    before = torch_server.metric("baton_engine_prefilled_tokens_total")
    question = [{"role": "system", "content": "You invent strange words. " + "They are never short. " * 30}, *HI]
    answer = chat(sdk, messages=question, n=3, temperature=1.5, seed=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3
    assert answer.usage.completion_tokens <= 36
    prompt, name = answer.usage.prompt_tokens, "baton_engine_prefilled_tokens_total"
    eventually(lambda: torch_server.metric(name) >= before + prompt, "the heartbeat has told")
    # Each further choice computes the last token of the prompt again, and other tests' tokens may be told late.
    assert torch_server.metric(name) < before + 2 * prompt


def test_logprobs_spell_the_answer_and_contain_the_chosen_token(sdk: openai.OpenAI) -> None:
    answer = chat(sdk, max_tokens=6, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in content).decode() == text_of(answer)
    for token in content:
        assert -9999 <= token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].bytes == token.bytes, "greedy took another token than the likeliest"


@pytest.mark.parametrize("max_tokens", [0, 4])
def test_completions_echo_and_score_a_prompt(sdk: openai.OpenAI, max_tokens: int) -> None:
    answer = sdk.completions.create(
        model=MODEL, prompt="The sky is", echo=True, max_tokens=max_tokens, logprobs=2, temperature=0
    )
    text, scores = answer.choices[0].text, answer.choices[0].logprobs
    assert text.startswith("The sky is")
    assert (text == "The sky is") == (max_tokens == 0)
    assert "".join(scores.tokens) == text
    assert scores.token_logprobs[0] is None
    assert all(score <= 0 for score in scores.token_logprobs[1:])
    assert len(scores.tokens) == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens == max_tokens


def test_stop_string_cuts_the_answer_where_it_begins(sdk: openai.OpenAI) -> None:
    whole = text_of(chat(sdk, max_tokens=20))
    stop = whole[len(whole) // 2 :][:4]
    answer = chat(sdk, max_tokens=20, stop=[stop])
    assert (text_of(answer), answer.choices[0].finish_reason) == (whole[: whole.index(stop)], "stop")


def test_a_seed_repeats_an_answer_and_another_seed_does_not(sdk: openai.OpenAI) -> None:
    ask = lambda seed: text_of(chat(sdk, temperature=1.2, seed=seed))  # noqa: E731
    assert ask(11) == ask(11)
    assert len({ask(11), ask(12), ask(13)}) > 1


def test_logit_bias_forces_and_forbids_tokens(sdk: openai.OpenAI, torch_server: Server) -> None:
    [token] = torch_server.http.post("/tokenize", json={"content": " cat"}).json()["tokens"]
    assert text_of(chat(sdk, max_tokens=3, logit_bias={str(token): 100})) == " cat cat cat"
    first = chat(sdk, max_tokens=1)
    [forbidden] = torch_server.http.post("/tokenize", json={"content": text_of(first)}).json()["tokens"]
    assert text_of(chat(sdk, max_tokens=1, logit_bias={str(forbidden): -100})) != text_of(first)


def test_prompt_that_was_computed_before_is_not_computed_again(sdk: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "Once upon a time there was a lighthouse that nobody had ever painted. Go on."}]
    first, second = chat(sdk, messages=question, max_tokens=2), chat(sdk, messages=question, max_tokens=2)
    assert text_of(first) == text_of(second)
    # All but the last token, as far as it fills blocks.
    assert second.usage.prompt_tokens_details.cached_tokens > second.usage.prompt_tokens - 1 - 8
    assert second.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens_details.cached_tokens


def test_client_that_leaves_frees_its_slot(torch_server: Server) -> None:
    streams = [begin_story(torch_server) for _ in range(4)]
    eventually(lambda: torch_server.load()[0] == 4, "all slots are taken")
    for stream in streams:
        stream.close()
    torch_server.wait_until_idle()
    assert torch_server.chat(n=4, max_tokens=2).status_code == 200
    torch_server.wait_until_idle()
    assert torch_server.metric("baton_engine_kv_blocks_used") == 0


def test_what_cannot_be_served_is_refused_with_the_reason(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as too_long:
        chat(sdk, messages=[{"role": "user", "content": "word " * TORCH_CONTEXT}], stream=True)
    assert too_long.value.code == "context_length_exceeded"
    assert str(TORCH_CONTEXT) in too_long.value.message
    with pytest.raises(openai.BadRequestError) as no_vectors:
        sdk.embeddings.create(model=MODEL, input="a cat")
    assert no_vectors.value.type == "invalid_request_error"
    assert "embedding" in no_vectors.value.message
    [model] = sdk.models.list()
    assert model.max_model_len == TORCH_CONTEXT


def test_metrics_show_the_engine_at_work(sdk: openai.OpenAI, torch_server: Server) -> None:
    names = ("steps", "prompt_tokens", "prefilled_tokens", "decoded_tokens", "step_prefill_seconds", "step_decode_seconds")
    before = {name: torch_server.metric(f"baton_engine_{name}_total") for name in names}
    chat(sdk, messages=[{"role": "user", "content": "Which figures move?"}], max_tokens=3)
    for name, value in before.items():
        eventually(lambda n=name, v=value: torch_server.metric(f"baton_engine_{n}_total") > v, f"{name} has grown")
    for gauge in ("kv_blocks", "kv_cache_bytes", "weights_prefill_bytes", "weights_decode_bytes", "weights_words_bytes"):
        assert torch_server.metric(f"baton_engine_{gauge}") > 0
    assert torch_server.metric("baton_engine_kv_blocks_cached") > 0


def test_killed_engine_is_started_again(torch_server: Server) -> None:
    crashes, engine = torch_server.metric("baton_engine_crashes_total"), torch_server.engine()
    stream = begin_story(torch_server)
    engine.kill()
    events = [line for line in read_to_end(stream).decode().splitlines() if line.startswith("data: ")]
    error = json.loads(events[-2].removeprefix("data: "))["error"]
    assert error["code"] == "engine_crashed"
    assert "SIGKILL" in error["message"]
    eventually(lambda: torch_server.chat(max_tokens=2).status_code == 200, "the engine answers again")
    assert torch_server.engine().pid != engine.pid
    assert torch_server.metric("baton_engine_crashes_total") == crashes + 1
