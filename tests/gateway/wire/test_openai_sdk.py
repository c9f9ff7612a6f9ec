"""The official Python SDK, which is what most clients are, as the judge of the wire."""

import base64
import struct

import openai
import pytest
from pydantic import BaseModel

from tests.gateway.wire.conftest import TEXT, Gateway

HI = [{"role": "user", "content": "hi"}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    for name in ("weather", "clock")
]


def test_create_answers_whole(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=HI)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.system_fingerprint.startswith("baton-")
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.tool_calls is None
    assert answer.usage.completion_tokens == len(TEXT.encode())
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer._request_id


def test_stream_says_the_same_as_create_with_one_role_and_one_finish(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(model="fake", messages=HI, stream=True, stream_options={"include_usage": True})
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert [chunk.choices[0].delta.role for chunk in chunks if chunk.choices] == ["assistant"] + [None] * (len(chunks) - 2)
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(TEXT.encode())
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_usage_chunk_is_not_sent_unasked(client: openai.OpenAI) -> None:
    for options in (openai.omit, None, {"include_usage": False}):
        chunks = list(client.chat.completions.create(model="fake", messages=HI, stream=True, stream_options=options))
        assert all(chunk.choices for chunk in chunks)


def test_stream_helper_accumulates_three_choices(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="fake", messages=HI, n=3) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == [TEXT, "second", "third"]
    assert [choice.finish_reason for choice in final.choices] == ["stop"] * 3
    assert [choice.message.role for choice in final.choices] == ["assistant"] * 3
    assert sum(event.type == "content.done" for event in events) == 3


def test_parallel_tool_calls_then_their_results(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tools", messages=HI, tools=TOOLS)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("weather", '{"city": "Köln"}'),
        ("clock", "{}"),
    ]
    assert len({call.id for call in message.tool_calls}) == 2
    results = [{"role": "tool", "tool_call_id": call.id, "content": "12"} for call in message.tool_calls]
    answer = client.chat.completions.create(model="tools", messages=[*HI, message, *results], tools=TOOLS)
    assert answer.choices[0].message.content == "Done."


def test_stream_helper_accumulates_tool_calls_that_can_be_sent_back(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="tools", messages=HI, tools=TOOLS) as stream:
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("weather", '{"city": "Köln"}'),
        ("clock", "{}"),
    ]
    results = [{"role": "tool", "tool_call_id": c.id, "content": [{"type": "text", "text": "12"}]} for c in message.tool_calls]
    answer = client.chat.completions.create(model="tools", messages=[*HI, message, *results])
    assert answer.choices[0].message.content == "Done."


def test_tool_choice_is_obeyed(client: openai.OpenAI) -> None:
    def call(**options: object) -> list[str]:
        answer = client.chat.completions.create(model="tools", messages=HI, tools=TOOLS, **options)
        return [tool_call.function.name for tool_call in answer.choices[0].message.tool_calls or []]

    assert call(tool_choice="none") == []
    assert call(tool_choice="required") == ["weather", "clock"]
    assert call(tool_choice={"type": "function", "function": {"name": "clock"}}) == ["clock"]
    assert call(parallel_tool_calls=False) == ["weather"]


class Person(BaseModel):
    name: str
    age: int


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_parse_with_a_pydantic_model_and_its_message_sent_back(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(model="json", messages=HI, response_format=Person)
    assert answer.choices[0].message.parsed == Person(name="Ada", age=36)
    again = client.chat.completions.create(model="json", messages=[*HI, answer.choices[0].message, *HI])
    assert again.choices[0].finish_reason == "stop"
    dumped = [answer.choices[0].message.model_dump() | {"parsed": {"name": "Ada"}}]
    assert client.chat.completions.create(model="json", messages=[*HI, *dumped, *HI]).choices


def test_logprobs_concatenate_to_the_text_in_both_modes(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=HI, logprobs=True, top_logprobs=2)
    content = answer.choices[0].logprobs.content
    assert bytes(byte for token in content for byte in token.bytes).decode() == TEXT
    assert all(len(token.top_logprobs) == 2 for token in content)
    chunks = client.chat.completions.create(model="fake", messages=HI, logprobs=True, stream=True)
    streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert bytes(byte for token in streamed for byte in token.bytes).decode() == TEXT
    assert all(token.top_logprobs == [] for token in streamed)


def test_explicit_nulls_and_empty_tools_mean_absent(client: openai.OpenAI) -> None:
    names = (
        "stop tools tool_choice temperature top_p n seed logit_bias max_tokens response_format user metadata audio functions"
    )
    answer = client.chat.completions.create(model="fake", messages=HI, extra_body=dict.fromkeys(names.split()))
    assert answer.choices[0].message.content == TEXT
    assert client.chat.completions.create(model="fake", messages=HI, tools=[]).choices[0].finish_reason == "stop"


def test_stop_and_limits(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=HI, stop=[", 世", ""])
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Hello", "stop")
    answer = client.chat.completions.create(model="fake", messages=HI, max_completion_tokens=3, stop="")
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Hel", "length")


def test_completions_of_several_prompts_in_order(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt=["a", "b"], n=2, max_tokens=200, echo=True)
    assert [choice.text for choice in answer.choices] == ["a" + TEXT, "asecond", "b" + TEXT, "bsecond"]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.prompt_tokens == 2
    assert answer.id.startswith("cmpl-")
    chunks = list(
        client.completions.create(
            model="fake", prompt=["a", "b"], n=2, max_tokens=200, echo=True, stream=True, stream_options={"include_usage": True}
        )
    )
    texts = ["".join(c.choices[0].text for c in chunks if c.choices and c.choices[0].index == i) for i in range(4)]
    assert texts == [choice.text for choice in answer.choices]
    assert chunks[-1].usage == answer.usage
    finishes = sorted(c.choices[0].index for c in chunks if c.choices and c.choices[0].finish_reason)
    assert finishes == [0, 1, 2, 3]


def test_more_prompts_than_run_at_once(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="plain", prompt=[str(i) for i in range(128)], echo=True)
    assert [choice.text for choice in answer.choices] == [f"{i}Hi you" for i in range(128)]


def test_completions_of_token_ids(client: openai.OpenAI) -> None:
    assert client.completions.create(model="plain", prompt=[65, 66], echo=True).choices[0].text == "ABHi you"
    answer = client.completions.create(model="plain", prompt=[[65], [66]], echo=True)
    assert [choice.text for choice in answer.choices] == ["AHi you", "BHi you"]


def test_legacy_logprobs_with_echo_and_no_answer(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="plain", prompt="aé", logprobs=1, echo=True, max_tokens=0)
    logprobs = answer.choices[0].logprobs
    assert logprobs.tokens == ["a", "bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs.token_logprobs == [None, -0.125, -0.125]
    assert logprobs.text_offset == [0, 1, 1]
    assert logprobs.top_logprobs[0] is None
    assert logprobs.top_logprobs[1] == {"bytes:\\xc3": -0.125}
    assert answer.usage.completion_tokens == 0


def test_embeddings_are_the_same_as_floats_and_by_default_as_base64(client: openai.OpenAI) -> None:
    default = client.embeddings.create(model="fake", input=["a", "b"])
    floats = client.embeddings.create(model="fake", input=["a", "b"], encoding_format="float")
    raw = client.embeddings.create(model="fake", input=["a", "b"], encoding_format="base64")
    for index in range(2):
        vector = default.data[index].embedding
        assert default.data[index].index == index
        assert vector == pytest.approx(floats.data[index].embedding)
        assert list(struct.unpack("<16f", base64.b64decode(raw.data[index].embedding))) == pytest.approx(vector)
    assert default.usage.total_tokens == 2
    assert len(client.embeddings.create(model="fake", input=[[65, 66], [67]], dimensions=4).data[0].embedding) == 4
    assert len(client.embeddings.create(model="fake", input=[65, 66]).data) == 1


def test_models_are_listed_and_found_also_with_slashes(client: openai.OpenAI, gateway: Gateway) -> None:
    assert {model.id for model in client.models.list()} == set(gateway.backends)
    assert client.models.retrieve("org/model/7b").id == "org/model/7b"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("nope")
    assert caught.value.code == "model_not_found"


def test_sdk_raises_its_own_error_classes_with_our_words(client: openai.OpenAI) -> None:
    cases = [
        ("nope", openai.NotFoundError, "model_not_found"),
        ("failed-first", openai.InternalServerError, "engine_failed"),
        ("full", openai.InternalServerError, "engine_overloaded"),
    ]
    for model, kind, code in cases:
        for stream in (False, True):
            with pytest.raises(kind) as caught:
                client.chat.completions.create(model=model, messages=HI, stream=stream)
            assert caught.value.code == code
            assert caught.value.request_id
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="fake", messages=HI, temperature=3)
    assert caught.value.param == "temperature"


def test_an_error_after_the_first_token_reaches_the_sdk(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="failed-later", messages=HI, stream=True)
    seen = []
    with pytest.raises(openai.APIError) as caught:
        seen += [chunk.choices[0].delta.content for chunk in stream]
    assert caught.value.code == "engine_failed"
