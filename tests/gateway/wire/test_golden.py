"""Streams and answers to the byte, but for id and time."""

import re

import httpx

from tests.gateway.wire.raw import HI

HEAD = '{"id":"ID","object":"chat.completion.chunk","created":0,"model":"MODEL","system_fingerprint":"FP","choices":['
LEGACY_HEAD = '{"id":"ID","object":"text_completion","created":0,"model":"MODEL","system_fingerprint":"FP","choices":['


def normalise(text: str) -> str:
    text = re.sub(r'"id":"(chatcmpl|cmpl)-[0-9a-f]{32}"', '"id":"ID"', text)
    text = re.sub(r"call_[0-9a-f]{12}_", "call_", text)
    text = re.sub(r'"created":\d+', '"created":0', text)
    return re.sub(r'"system_fingerprint":"baton-[^"]+"', '"system_fingerprint":"FP"', text)


def events(http: httpx.Client, path: str, **body: object) -> list[str]:
    answer = http.post(path, json=body | {"stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["openai-version"] == "2020-10-01"
    assert "content-length" not in answer.headers
    text = normalise(answer.content.decode())
    assert text.endswith("\n\n")
    frames = text.removesuffix("\n\n").split("\n\n")
    assert all(frame.startswith("data: ") for frame in frames)
    return [frame.removeprefix("data: ") for frame in frames]


def chunk(model: str, rest: str, tail: str = "]}", head: str = HEAD) -> str:
    return head.replace("MODEL", model) + rest + tail


def delta(inner: str, index: int = 0, finish: str = "null") -> str:
    return f'{{"index":{index},"delta":{inner},"logprobs":null,"finish_reason":{finish}}}'


ROLE = '{"role":"assistant","content":"","refusal":null}'


def test_chat_stream(http: httpx.Client) -> None:
    assert events(http, "/v1/chat/completions", model="plain", messages=HI, max_tokens=3) == [
        chunk("plain", delta(ROLE)),
        chunk("plain", delta('{"content":"H"}')),
        chunk("plain", delta('{"content":"i"}')),
        chunk("plain", delta('{"content":" "}')),
        chunk("plain", delta("{}", finish='"length"')),
        "[DONE]",
    ]


def test_chat_stream_with_usage(http: httpx.Client) -> None:
    tail = '],"usage":null}'
    options = {"include_usage": True}
    usage = '{"prompt_tokens":19,"completion_tokens":1,"total_tokens":20,"prompt_tokens_details":{"cached_tokens":0}}'
    assert events(http, "/v1/chat/completions", model="plain", messages=HI, max_tokens=1, stream_options=options) == [
        chunk("plain", delta(ROLE), tail),
        chunk("plain", delta('{"content":"H"}'), tail),
        chunk("plain", delta("{}", finish='"length"'), tail),
        chunk("plain", "", '],"usage":' + usage + "}"),
        "[DONE]",
    ]


def test_chat_stream_of_two_choices(http: httpx.Client) -> None:
    assert events(http, "/v1/chat/completions", model="plain", messages=HI, max_tokens=1, n=2) == [
        chunk("plain", delta(ROLE)),
        chunk("plain", delta('{"content":"H"}')),
        chunk("plain", delta(ROLE, 1)),
        chunk("plain", delta('{"content":"H"}', 1)),
        chunk("plain", delta("{}", 0, '"length"')),
        chunk("plain", delta("{}", 1, '"length"')),
        "[DONE]",
    ]


def test_chat_stream_of_tool_calls(http: httpx.Client) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]
    first = '{"index":0,"id":"call_0_0","type":"function","function":{"name":"weather","arguments":""}}'
    second = '{"index":1,"id":"call_0_1","type":"function","function":{"name":"clock","arguments":""}}'
    calls = [
        first,
        r'{"index":0,"function":{"arguments":"{\"city\":"}}',
        r'{"index":0,"function":{"arguments":" \"Köln\"}"}}',
        second,
        '{"index":1,"function":{"arguments":"{}"}}',
    ]
    assert events(http, "/v1/chat/completions", model="tools", messages=HI, tools=tools) == [
        chunk("tools", delta(ROLE)),
        *(chunk("tools", delta('{"tool_calls":[' + call + "]}")) for call in calls),
        chunk("tools", delta("{}", finish='"tool_calls"')),
        "[DONE]",
    ]


def test_chat_stream_with_logprobs(http: httpx.Client) -> None:
    token = '{"token":"H","logprob":-0.125,"bytes":[72],"top_logprobs":[{"token":"H","logprob":-0.125,"bytes":[72]}]}'
    logprobs = '{"content":[' + token + '],"refusal":null}'
    content = '{"index":0,"delta":{"content":"H"},"logprobs":' + logprobs + ',"finish_reason":null}'
    body = {"model": "plain", "messages": HI, "max_tokens": 1, "logprobs": True, "top_logprobs": 1}
    assert events(http, "/v1/chat/completions", **body) == [
        chunk("plain", delta(ROLE)),
        chunk("plain", content),
        chunk("plain", delta("{}", finish='"length"')),
        "[DONE]",
    ]


def test_a_stream_that_fails_later_ends_with_an_error_event(http: httpx.Client) -> None:
    error = '{"error":{"message":"The script says Failed.","type":"upstream_error","param":null,"code":"engine_failed"}}'
    frames = events(http, "/v1/chat/completions", model="failed-later", messages=HI)
    assert frames[0] == chunk("failed-later", delta(ROLE))
    assert frames[-2:] == [error, "[DONE]"]


def test_a_bug_in_the_middle_of_a_stream_tells_nothing(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", json={"model": "buggy", "messages": HI, "stream": True, "stop": "x"})
    frames = answer.text.removesuffix("\n\n").split("\n\n")
    assert frames[-1] == "data: [DONE]"
    assert '"code":"internal_error"' in frames[-2]
    assert answer.headers["x-request-id"] in frames[-2]
    assert "secret" not in answer.text


def test_completion_stream(http: httpx.Client) -> None:
    def one(text: str, finish: str = "null") -> str:
        rest = f'{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{finish}}}'
        return chunk("plain", rest, head=LEGACY_HEAD)

    assert events(http, "/v1/completions", model="plain", prompt="a", echo=True, max_tokens=2) == [
        one("a"),
        one("H"),
        one("i"),
        one("", '"length"'),
        "[DONE]",
    ]


def test_whole_answers(http: httpx.Client) -> None:
    usage = '"usage":{"prompt_tokens":19,"completion_tokens":2,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":0}}}'
    answer = http.post("/v1/chat/completions", json={"model": "plain", "messages": HI, "max_tokens": 2})
    assert normalise(answer.text) == (
        '{"id":"ID","object":"chat.completion","created":0,"model":"plain","system_fingerprint":"FP","choices":[{"index":0,'
        '"message":{"role":"assistant","content":"Hi","refusal":null},"logprobs":null,"finish_reason":"length"}],' + usage
    )
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    assert answer.headers["openai-processing-ms"].isdecimal()
    assert answer.headers["openai-version"] == "2020-10-01"
    answer = http.post("/v1/completions", json={"model": "plain", "prompt": "a", "max_tokens": 1})
    usage = '"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}'
    assert normalise(answer.text) == (
        '{"id":"ID","object":"text_completion","created":0,"model":"plain","system_fingerprint":"FP","choices":['
        '{"text":"H","index":0,"logprobs":null,"finish_reason":"length"}],' + usage
    )
