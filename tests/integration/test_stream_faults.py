"""What upstreams do to streams, and what the client of the whole gateway sees of it."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.events import DONE, MODELS, STOP, TEXT, USAGE, chunk, chunks_of, data_of, piece, text_of
from tests.integration.in_process import CHAT, HI, serving
from tests.integration.remote_toml import one
from tests.upstream import Bytewise, Pause, Reset, Step, event, scripted, stream

ROLE = chunk({"role": "assistant", "content": ""})
WHOLE = ROLE + b"".join(piece(character) for character in TEXT) + STOP + DONE


async def ask(folder: Path, *steps: Step, patience_s: float = 10.0, **fields: Any) -> tuple[bytes, int]:
    """The bytes that a client gets for a stream of these steps, and how often the upstream was asked."""
    async with (
        scripted(stream(*steps), checks=MODELS) as upstream,
        serving(folder, one(upstream.url, patience_s=patience_s)) as it,
    ):
        answer = await it.chat(stream=True, **fields)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-baton-deployment"] == "first"
        assert answer.headers["x-accel-buffering"] == "no"
        return answer.content, len(upstream.requests)


async def test_one_byte_per_write_hurts_no_character(tmp_path: Path) -> None:
    body, _ = await ask(tmp_path, Bytewise(WHOLE))
    assert text_of(body) == TEXT
    assert "�" not in body.decode()
    assert {event["model"] for event in chunks_of(body)} == {"chat"}


async def test_carriage_returns_comments_and_ids_do_not_reach_the_client(tmp_path: Path) -> None:
    noisy = b": ping\n\n" + WHOLE.replace(b"data: {", b": hello\nid: 7\nretry: 10\nevent: message\ndata: {")
    body, _ = await ask(tmp_path, Bytewise(noisy.replace(b"\n", b"\r\n")))
    assert text_of(body) == TEXT
    assert b"\r" not in body
    assert not [line for line in body.split(b"\n") if line.startswith((b"id:", b"retry:", b"event:"))]


@pytest.mark.parametrize("wanted", [True, False])
async def test_usage_chunk_reaches_whoever_asked_for_it(tmp_path: Path, wanted: bool) -> None:
    bare = USAGE.replace(b'"choices":[],', b"")
    assert bare != USAGE
    fields = {"stream_options": {"include_usage": True}} if wanted else {}
    body, _ = await ask(tmp_path, ROLE, piece("a"), STOP, bare, DONE, **fields)
    usages = [event for event in chunks_of(body) if event.get("usage")]
    assert [(event["choices"], event["usage"]["total_tokens"]) for event in usages] == ([([], 10)] if wanted else [])


async def test_usage_is_metered_although_nobody_asked_for_it(tmp_path: Path) -> None:
    script = stream(ROLE, piece("a"), STOP, USAGE, DONE)
    async with scripted(script, checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it:
        await it.chat(stream=True)
        assert upstream.requests[0].json()["stream_options"] == {"include_usage": True}
        lines = (await it.http.get("/metrics")).text.splitlines()
    counted = [line for line in lines if "token" in line and 'model="chat"' in line and line.endswith((" 7.0", " 3.0"))]
    assert len(counted) >= 2, [line for line in lines if "token" in line]


async def test_tool_calls_with_wrong_indexes_are_two_calls_for_the_sdk(tmp_path: Path) -> None:
    def call(number: int, **fields: Any) -> bytes:
        return chunk({"tool_calls": [{"index": number} | fields]})

    steps = [
        ROLE,
        call(1, id="a", type="function", function={"name": "weather", "arguments": ""}),
        call(1, function={"arguments": '{"city":'}),
        call(1, function={"arguments": '"Köln"}'}),
        call(1, id="b", type="function", function={"name": "clock", "arguments": "{}"}),
        chunk({}, "tool_calls") + DONE,
    ]
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("weather", "clock")]
    async with scripted(stream(*steps), checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it:
        client = openai.AsyncOpenAI(base_url=f"{it.url}/v1", api_key="none", max_retries=0)
        async with client, client.chat.completions.stream(model="chat", messages=HI, tools=tools) as streamed:
            final = await streamed.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("weather", '{"city":"Köln"}'),
        ("clock", "{}"),
    ]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ([event({"error": {"message": "out of memory", "code": 500}})], "upstream_error"),
        ([Reset()], "upstream_"),
        ([], "upstream_protocol_error"),
        ([Pause(60)], "upstream_timeout"),
        ([b"data: {broken\n\n"], "upstream_protocol_error"),
        ([b"data: " + b"x" * 200_000], "upstream_protocol_error"),
    ],
    ids=["error event", "reset", "end without a finish", "stall", "no JSON", "endless event"],
)
async def test_break_after_the_first_token_is_an_error_event_and_no_retry(
    tmp_path: Path, ending: list[Step], code: str
) -> None:
    async with asyncio.timeout(10):
        body, asked = await ask(tmp_path, ROLE, piece("Once upon"), Pause(0.02), *ending, patience_s=0.5)
    events = chunks_of(body)
    assert [event["choices"][0]["delta"].get("content") for event in events[:-1]][-1] == "Once upon"
    assert events[-1]["error"]["code"].startswith(code)
    assert events[-1]["error"]["message"]
    assert asked == 1


async def test_openai_sdk_raises_the_error_event(tmp_path: Path) -> None:
    broken = event({"error": {"message": "out of memory", "type": "server_error"}})
    script = stream(ROLE, piece("a"), broken)
    async with (
        scripted(script, checks=MODELS) as upstream,
        serving(tmp_path, one(upstream.url)) as it,
        openai.AsyncOpenAI(base_url=f"{it.url}/v1", api_key="none", max_retries=0) as client,
    ):
        chunks = await client.chat.completions.create(model="chat", messages=HI, stream=True)
        with pytest.raises(openai.APIError, match="out of memory"):
            async for _ in chunks:
                pass


async def test_first_token_is_not_held_back_by_the_rest(tmp_path: Path) -> None:
    script = stream(ROLE, piece("first"), Pause(60))
    async with scripted(script, checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it, asyncio.timeout(5):
        body = {"model": "chat", "messages": HI, "stream": True}
        async with it.http.stream("POST", CHAT, json=body) as answer:
            seen = b""
            async for data in answer.aiter_raw():
                seen += data
                if b"first" in seen:
                    break
    assert "[DONE]" not in data_of(seen)
