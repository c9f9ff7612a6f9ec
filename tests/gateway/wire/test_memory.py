"""What the gateway remembers around chat requests: conversations by header, and answers that are given again."""

from uuid import uuid4

import httpx
import openai
import pytest

from tests.gateway.wire.conftest import TEXT, Gateway

CHAT = "/v1/chat/completions"


def turn(http: httpx.Client, text: str, conversation: str, **fields: object) -> httpx.Response:
    body = {"model": "fake", "messages": [{"role": "user", "content": text}]} | fields
    return http.post(CHAT, json=body, headers={"x-baton-conversation": conversation})


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_sends_only_the_new_turn(http: httpx.Client, stream: bool) -> None:
    """The scripted model's reply is chosen by the number of answers that it finds in the conversation."""
    conversation = uuid4().hex
    assert turn(http, "one", conversation, stream=stream).status_code == 200
    again = turn(http, "two", conversation)
    assert again.json()["choices"][0]["message"]["content"] == "second"
    assert turn(http, "three", conversation).json()["choices"][0]["message"]["content"] == "third"
    assert turn(http, "one", uuid4().hex).json()["choices"][0]["message"]["content"] == TEXT


def test_a_turn_that_failed_is_not_kept(http: httpx.Client) -> None:
    conversation = uuid4().hex
    assert turn(http, "one", conversation, model="failed-first").status_code == 502
    assert turn(http, "one", conversation).json()["choices"][0]["message"]["content"] == TEXT


def test_a_kept_conversation_has_one_answer_per_turn(http: httpx.Client) -> None:
    refused = turn(http, "one", "abc", n=2)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "n"


def test_conversations_are_for_chats(http: httpx.Client) -> None:
    refused = http.post("/v1/completions", json={"model": "fake", "prompt": "x"}, headers={"x-baton-conversation": "abc"})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "x-baton-conversation"


def test_the_cache_gives_an_answer_again_whole_and_as_a_stream(gateway: Gateway, http: httpx.Client) -> None:
    body = {"model": "fake", "messages": [{"role": "user", "content": uuid4().hex}]}
    headers = {"x-baton-cache": "use"}
    first = http.post(CHAT, json=body, headers=headers)
    assert first.headers["x-baton-cache"] == "miss"
    second = http.post(CHAT, json=body, headers=headers)
    assert second.headers["x-baton-cache"] == "hit"
    assert second.json()["choices"] == first.json()["choices"]
    assert second.json()["id"] != first.json()["id"]
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", default_headers=headers) as sdk:
        stream = sdk.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
        chunks = list(stream)
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == TEXT
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == first.json()["usage"]["prompt_tokens"]


def test_a_streamed_answer_is_kept_too(http: httpx.Client) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]
    body = {"model": "tools", "messages": [{"role": "user", "content": uuid4().hex}], "tools": tools}
    headers = {"x-baton-cache": "use"}
    assert http.post(CHAT, json=body | {"stream": True}, headers=headers).headers["x-baton-cache"] == "miss"
    kept = http.post(CHAT, json=body, headers=headers)
    assert kept.headers["x-baton-cache"] == "hit"
    calls = kept.json()["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["weather", "clock"]


def test_without_the_header_nothing_is_kept_by_default(http: httpx.Client) -> None:
    body = {"model": "fake", "messages": [{"role": "user", "content": uuid4().hex}], "temperature": 0}
    assert "x-baton-cache" not in http.post(CHAT, json=body).headers
    assert http.post(CHAT, json=body, headers={"x-baton-cache": "use"}).headers["x-baton-cache"] == "miss"


def test_a_wrong_mode_is_refused(http: httpx.Client) -> None:
    body = {"model": "fake", "messages": [{"role": "user", "content": "x"}]}
    assert http.post(CHAT, json=body, headers={"x-baton-cache": "maybe"}).status_code == 400


def test_an_answer_from_the_cache_is_a_turn_of_the_conversation_too(http: httpx.Client) -> None:
    """The scripted model's reply to the second turn shows that it finds the first one."""
    text = uuid4().hex
    for conversation in (uuid4().hex, uuid4().hex):
        headers = {"x-baton-conversation": conversation, "x-baton-cache": "use"}
        body = {"model": "fake", "messages": [{"role": "user", "content": text}]}
        first = http.post(CHAT, json=body, headers=headers)
        assert first.json()["choices"][0]["message"]["content"] == TEXT
        assert turn(http, "two", conversation).json()["choices"][0]["message"]["content"] == "second"
    assert first.headers["x-baton-cache"] == "hit"
