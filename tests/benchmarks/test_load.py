"""The load generator counts what happened: tokens, pieces, failures; whatever the server does to the connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchmarks.load import Workload, measure, percentiles
from benchmarks.upstream import Upstream
from tests.benchmarks.loopback import handling, serving

EVENTS = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
PIECE = 'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
USAGE = 'data: {"choices": [], "usage": {"completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}}\n\n'
DONE = "data: [DONE]\n\n"


def workload(**changes: Any) -> Workload:
    fields: dict[str, Any] = {"model": "m", "users": 2, "requests": 6, "stream": True, "salt": "test"}
    return Workload(**(fields | changes))


@asynccontextmanager
async def upstream(chunks: int = 5) -> AsyncIterator[str]:
    async with serving(lambda: Upstream(chunks, 0.0, 0.0)) as (url, _):
        yield url


@asynccontextmanager
async def answering(text: str) -> AsyncIterator[str]:
    """Answer every request with these bytes and close the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}]")
        writer.write(text.encode())
        await writer.drain()

    async with handling(answer) as (url, _):
        yield url


@pytest.mark.parametrize(("stream", "tokens"), [(True, 6 * 5), (False, 6)])
async def test_every_request_and_token_is_counted(stream: bool, tokens: int) -> None:
    async with upstream() as url:
        figures = await measure(url, workload(stream=stream))
    assert (figures["n"], figures["errors"], figures["tokens"]) == (6, 0, tokens)
    assert figures["ttft_ms"]["p50"] > 0
    assert (figures["itl_ms"]["p50"] is not None) == stream


async def test_usage_counts_the_tokens_when_pieces_hold_several() -> None:
    async with answering(f"{EVENTS}\r\n{PIECE}{PIECE}{USAGE}{DONE}") as url:
        figures = await measure(url, workload())
    assert (figures["errors"], figures["tokens"], figures["cached_tokens"]) == (0, 6 * 7, 6 * 3)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nfull", "503 full"),
        (f'{EVENTS}\r\n{PIECE}data: {{"error": {{"message": "broke"}}}}\n\n{DONE}', "broke"),
        (f"{EVENTS}\r\n{PIECE}", "without [DONE]"),
        (f"{EVENTS}content-length: 9999\r\n\r\n{PIECE}", "early"),
        (f"{EVENTS}transfer-encoding: chunked\r\n\r\nff\r\n{PIECE}", "early"),
        (f"{EVENTS}\r\ndata: {{not json\n\n{DONE}", "malformed"),
        ("", "without an answer"),
    ],
)
async def test_a_broken_answer_is_an_error_and_no_latency(answer: str, reason: str) -> None:
    async with answering(answer) as url:
        figures = await measure(url, workload(requests=3))
    assert figures["errors"] == 3
    assert reason in figures["first_error"]
    assert figures["e2e_ms"]["p50"] is None


async def test_a_silent_server_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with handling(silent) as (url, _):
        figures = await measure(url, workload(requests=2), timeout_s=0.05)
    assert figures["errors"] == 2
    assert "TimeoutError" in figures["first_error"]


async def test_other_machines_are_refused() -> None:
    with pytest.raises(ValueError, match="not on this machine"):
        await measure("http://192.0.2.1:8000", workload())


def text(workload: Workload, number: int) -> str:
    return str(workload.body(number)["messages"][0]["content"])


def test_prompts_share_exactly_the_prefix_that_was_asked_for() -> None:
    load = workload(shared_prefix=50, prompt_words=30)
    first, second = text(load, 0).split(), text(load, 1).split()
    assert len(first) == 50 + 30 + 1
    assert first[:50] == second[:50]
    assert first[50:] != second[50:]


def test_random_words_stand_where_the_prompt_wants_them() -> None:
    words = text(workload(prompt_words=3), 7)
    assert text(workload(prompt_words=3, prompt="Repeat: {words}!"), 7) == f"Repeat: {words}!"
    assert text(workload(prompt="Hello"), 7) == "Hello"


def test_runs_share_prompts_only_by_equal_salt() -> None:
    assert text(workload(salt="a"), 0) == text(workload(salt="a"), 0)
    assert text(workload(salt="a"), 0) != text(workload(salt="b"), 0)


def test_percentiles_are_nearest_rank_in_milliseconds() -> None:
    assert percentiles([number / 1000 for number in range(100)]) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}
