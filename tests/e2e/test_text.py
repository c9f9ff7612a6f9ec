"""What the text of an answer is, whichever way it is asked for: characters of several tokens, prefill, tokens and back."""

import json

import httpx
import openai
import pytest

from tests.e2e.gateway_process import CHAT, MODEL, Server

WRITINGS = ["Repeat: 🧑‍🚀🎉😀", "Repeat: 漢字かな交じり文", "Repeat: été, naïve, Größe"]


def tokens_of(server: Server, text: str) -> list[int]:
    return server.http.post("/tokenize", json={"content": text}).json()["tokens"]


@pytest.mark.parametrize("writing", WRITINGS)
def test_streamed_characters_are_those_of_the_whole_answer(server: Server, client: openai.OpenAI, writing: str) -> None:
    # The model shall write these very tokens, one after another: a small model left to itself prefers English.
    wanted = tokens_of(server, writing.partition(" ")[2])
    bias = {str(token): 40 for token in set(wanted)}
    options = {"model": MODEL, "prompt": writing, "max_tokens": 14, "temperature": 0, "logit_bias": bias}
    whole = client.completions.create(**options).choices[0].text
    chunks = list(client.completions.create(**options, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole
    assert any(ord(character) > 127 for character in whole)
    streamed = [chunk.choices[0].text for chunk in chunks[:-1]]
    assert not any("\ufffd" in text for text in streamed), "half a character was sent before its other half"


def test_forced_emoji_comes_out_unharmed(server: Server, client: openai.OpenAI) -> None:
    # A schema that has exactly one answer makes the model write every byte of it.
    schema = {"type": "object", "properties": {"x": {"const": "é漢🧑‍🚀"}}, "required": ["x"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "one", "schema": schema, "strict": True}}
    options = {"model": MODEL, "messages": [{"role": "user", "content": "Go."}], "max_tokens": 40, "response_format": form}
    whole = client.chat.completions.create(**options).choices[0].message.content
    chunks = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**options, stream=True)]
    assert json.loads(whole) == json.loads("".join(chunks)) == {"x": "é漢🧑‍🚀"}
    assert not any("\ufffd" in chunk for chunk in chunks)


def test_stream_is_flushed_token_by_token(server: Server) -> None:
    body = {"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 8, "temperature": 0, "stream": True}
    with server.http.stream("POST", CHAT, json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        pieces = list(response.iter_raw())
    assert len(pieces) > 4
    assert pieces[-1].endswith(b"data: [DONE]\n\n")


def test_an_assistant_message_at_the_end_is_continued(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "one two three four five six"}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=6, temperature=0)
    assert not answer.choices[0].message.content.startswith("one two")
    assert "seven" in answer.choices[0].message.content


def test_developer_messages_are_read_as_system_messages(server: Server) -> None:
    def ids(role: str) -> list[int]:
        messages = [{"role": role, "content": "Answer in French."}, {"role": "user", "content": "Hi"}]
        return server.http.post("/tokenize", json={"messages": messages}).json()["tokens"]

    assert ids("developer") == ids("system")


@pytest.mark.parametrize("text", ["Hello <|im_start|> world", "é漢🧑‍🚀", " two  spaces\n\n", "\u2028"])
def test_tokenize_and_back(server: Server, text: str) -> None:
    answer = server.http.post("/detokenize", json={"tokens": tokens_of(server, text)})
    assert answer.json()["prompt"] == text


def test_control_tokens_in_a_message_do_not_end_it(server: Server) -> None:
    def ids(content: str) -> list[int]:
        return server.http.post("/tokenize", json={"messages": [{"role": "user", "content": content}]}).json()["tokens"]

    [end] = tokens_of_special(server, "<|im_end|>")
    assert ids("a<|im_end|>b").count(end) == ids("ab").count(end)


def tokens_of_special(server: Server, text: str) -> list[int]:
    answer: httpx.Response = server.http.post("/tokenize", json={"prompt": text, "add_special_tokens": False})
    return answer.json()["tokens"]


def test_the_second_turn_of_a_conversation_is_not_computed_again(client: openai.OpenAI) -> None:
    first = [{"role": "user", "content": "Tell me about the river Spree, its bridges and its ships."}]
    answer = client.chat.completions.create(model=MODEL, messages=first, max_tokens=12, temperature=0)
    second = [*first, answer.choices[0].message, {"role": "user", "content": "And its fish?"}]
    again = client.chat.completions.create(model=MODEL, messages=second, max_tokens=1)
    assert again.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens
