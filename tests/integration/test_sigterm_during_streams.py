"""SIGTERM in the middle of answers: those end whole, new requests are sent elsewhere, and the process goes with code 0."""

import asyncio
import signal
from pathlib import Path

import httpx

from tests.e2e.gateway_process import running
from tests.integration.events import DONE, MODELS, STOP, piece, text_of, whole
from tests.integration.in_process import CHAT, HI, until, until_status
from tests.integration.remote_toml import one
from tests.upstream import Script, Until, scripted, stream

SLOW = """
[models.slow]
engine = "fake"
token_delay_s = 0.01
replies = [{ text = "The quick brown fox jumps over the lazy dog, again and again and again." }]
"""


class Reader:
    """Reads one stream; `begun` is set once something has come."""

    def __init__(self, http: httpx.AsyncClient, model: str) -> None:
        self.begun = asyncio.Event()
        self.body = b""
        self.task = asyncio.create_task(self._read(http, model))

    async def _read(self, http: httpx.AsyncClient, model: str) -> None:
        async with http.stream("POST", CHAT, json={"model": model, "messages": HI, "stream": True}) as answer:
            assert answer.status_code == 200
            async for data in answer.aiter_raw():
                self.body += data
                self.begun.set()


async def test_what_runs_is_finished(tmp_path: Path) -> None:
    release = asyncio.Event()
    held = stream(piece("Once"), Until(release), piece(" upon"), STOP, DONE)
    json_held: Script = [Until(release), *whole("complete")]
    async with scripted(held, held, held, json_held, checks=MODELS) as upstream:
        with running(tmp_path / "gateway", one(upstream.url) + SLOW) as server:
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
                readers = [Reader(http, model) for model in ("chat", "chat", "chat", "slow", "slow")]
                await asyncio.wait_for(asyncio.gather(*(reader.begun.wait() for reader in readers)), 20)
                complete = asyncio.create_task(http.post(CHAT, json={"model": "chat", "messages": HI}))
                await until(lambda: len(upstream.requests) == 4)
                server.process.send_signal(signal.SIGTERM)
                await until_status(http, "/health/ready", 503)
                refused = await http.post(CHAT, json={"model": "slow", "messages": HI})
                release.set()
                await asyncio.wait_for(asyncio.gather(*(reader.task for reader in readers)), 20)
                assert (await complete).json()["choices"][0]["message"]["content"] == "complete"
                assert await asyncio.to_thread(server.process.wait, 20) == 0
    assert (refused.status_code, refused.headers["connection"]) == (503, "close")
    assert int(refused.headers["retry-after"]) >= 1
    assert [text_of(reader.body) for reader in readers[:3]] == ["Once upon"] * 3
    assert all(text_of(reader.body).endswith("again and again.") for reader in readers[3:])
