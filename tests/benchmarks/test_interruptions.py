"""Long prompts come one after another while streams run, and no longer; a refused one is an error."""

import asyncio
from typing import Any

from benchmarks.interruptions import LONG_ANSWER, interrupted
from benchmarks.load import Workload
from tests.benchmarks.loopback import handling

PIECE = 'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
ANSWER = f"HTTP/1.1 200 OK\r\n\r\n{PIECE}{PIECE}data: [DONE]\n\n".encode()
BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nfull"


def workload(**changes: Any) -> Workload:
    fields: dict[str, Any] = {"model": "m", "stream": True, "salt": "test"}
    return Workload(**(fields | changes))


STREAMS = workload(users=2, requests=2, max_tokens=2)
LONG = workload(prompt_words=900, max_tokens=LONG_ANSWER)


async def is_long(reader: asyncio.StreamReader) -> bool:
    request = await reader.readuntil(b"}]") + await reader.readuntil(b"}")
    return b'"max_tokens":%d,' % LONG_ANSWER in request


async def test_prompts_come_one_after_another_until_the_streams_have_ended() -> None:
    third, at_once, long_ones = asyncio.Event(), 0, 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once, long_ones
        if await is_long(reader):
            at_once += 1
            assert at_once == 1
            long_ones += 1
            if long_ones == 4:
                third.set()
                await reader.read()  # until the client gives up
            at_once -= 1
        else:
            await third.wait()
        writer.write(ANSWER)
        await writer.drain()

    async with handling(answer) as (url, clients), asyncio.timeout(5):
        figures = await interrupted(url, STREAMS, LONG)
    assert (figures["n"], figures["tokens"], figures["errors"], figures["prompts"]) == (2, 4, 0, 3)
    assert (clients.opened, clients.alive) == (6, 0)


async def test_a_refused_prompt_is_an_error_and_is_not_sent_again_and_again() -> None:
    refused = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await is_long(reader):
            writer.write(BUSY)
            await reader.read()  # until the client has understood and is gone
            refused.set()
        else:
            await refused.wait()
            writer.write(ANSWER)
            await writer.drain()

    async with handling(answer) as (url, clients), asyncio.timeout(5):
        figures = await interrupted(url, STREAMS, LONG)
    assert (figures["n"], figures["errors"], figures["prompts"]) == (2, 1, 0)
    assert "503 full" in figures["first_error"]
    assert clients.opened == 3
