"""A client that leaves takes its work along: within a second the upstream sees the connection closed, whatever it was doing."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.events import MODELS, chunk, piece, whole
from tests.integration.in_process import CHAT, HI, Gateway, serving, until
from tests.integration.remote_toml import one, two
from tests.upstream import STREAM_HEAD, Pause, Script, Until, scripted

WITHIN_S = 1.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"
FIRST = chunk({"role": "assistant", "content": ""}) + piece("Once")

PLACES: dict[str, tuple[bool, Script]] = {
    "stream, before the head": (True, [Pause(60)]),
    "stream, before the first token": (True, [STREAM_HEAD, Pause(60)]),
    "stream, in the middle": (True, [STREAM_HEAD, FIRST, Pause(60)]),
    "whole, before the head": (False, [Pause(60)]),
    "whole, in the middle": (False, [HEAD, b'{"choices": ', Pause(60)]),
}


async def send(it: Gateway, *, stream: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request over a connection of its own, and read nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
    body = json.dumps({"model": "chat", "messages": HI, "stream": stream}).encode()
    writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return reader, writer


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("place", PLACES)
async def test_upstream_is_let_go(tmp_path: Path, place: str) -> None:
    streams, script = PLACES[place]
    async with scripted(script, checks=MODELS) as upstream, serving(tmp_path, one(upstream.url)) as it:
        reader, writer = await send(it, stream=streams)
        await until(lambda: upstream.requests)
        if "stream, in the middle" in place:
            await asyncio.wait_for(reader.readuntil(b"Once"), 5)
        await leave(writer)
        await asyncio.wait_for(upstream.gone.wait(), WITHIN_S)
        deployment = it.services.router.deployments["first"]
        await until(lambda: deployment.outstanding == 0)


async def test_request_that_waits_its_turn_never_reaches_the_upstream(tmp_path: Path) -> None:
    release = asyncio.Event()
    async with (
        scripted([Until(release), *whole()], whole(), checks=MODELS) as upstream,
        serving(tmp_path, f"{one(upstream.url)}\n[queues.chat]\nmax_running = 1\n") as it,
    ):
        runs = asyncio.create_task(it.chat(content="first"))
        await until(lambda: upstream.requests)
        for streams in (True, False):
            _, writer = await send(it, stream=streams)
            await until(lambda: it.waiting("chat") == 1)
            await leave(writer)
            async with asyncio.timeout(WITHIN_S):
                await until(lambda: it.waiting("chat") == 0)
        release.set()
        assert (await runs).status_code == 200
        assert (await it.chat(content="last")).status_code == 200
    assert [asked.json()["messages"][0]["content"] for asked in upstream.requests] == ["first", "last"]


async def test_places_of_clients_that_left_are_free_again(tmp_path: Path) -> None:
    scripts = [[STREAM_HEAD, FIRST, Pause(60)]] * 10
    async with (
        scripted(*scripts, whole(), checks=MODELS) as upstream,
        serving(tmp_path, f"{one(upstream.url)}\n[queues.chat]\nmax_running = 2\n") as it,
    ):
        for count in range(10):
            reader, writer = await send(it, stream=True)
            await asyncio.wait_for(reader.readuntil(b"Once"), 5)
            assert len(upstream.requests) == count + 1
            await leave(writer)
        assert (await it.chat()).status_code == 200
        assert it.services.queues["chat"].snapshot().running == 0


async def test_both_attempts_of_a_hedged_request_are_let_go(tmp_path: Path) -> None:
    silent: Script = [Pause(60)]
    async with scripted(silent, checks=MODELS) as first, scripted(silent, checks=MODELS) as second:
        text = two(first.url, second.url).replace("private = true", "private = true\nhedge_after_s = 0.05")
        async with serving(tmp_path, text) as it:
            _, writer = await send(it, stream=True)
            await until(lambda: first.requests and second.requests)
            await leave(writer)
            async with asyncio.timeout(WITHIN_S):
                await asyncio.gather(first.gone.wait(), second.gone.wait())
