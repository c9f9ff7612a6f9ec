"""Another process keeps the SQLite file locked for two seconds: what must be written waits, everything else goes on."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.integration.events import MODELS, whole
from tests.integration.in_process import serving
from tests.integration.remote_toml import one
from tests.upstream import scripted

LOCKED_S = 2.0
PRICES = "\n[prices.chat]\ninput_per_mtok = 1.0\noutput_per_mtok = 2.0\n"
HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
connection.close()
"""


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Let another process hold the lock during the block."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, str(path), stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), 20) == b"locked\n"
        yield
    finally:
        process.stdin.close()
        await process.wait()
    assert process.returncode == 0


async def test_requests_go_on_and_what_must_be_written_is_written_afterwards(tmp_path: Path) -> None:
    async with (
        scripted(whole(), checks=MODELS) as upstream,
        serving(tmp_path, one(upstream.url) + PRICES, BATON_ADMIN_KEY="boss") as it,
    ):
        key = await it.create_key(name="alice", allowance={"budget_usd": 100.0, "requests_per_minute": 100_000})
        first = await it.chat(content="one", key=key, x_baton_conversation="talk")
        assert first.status_code == 200, first.text
        async with locked(tmp_path / "baton.db"):
            end = time.monotonic() + LOCKED_S
            second = asyncio.create_task(it.chat(content="two", key=key, x_baton_conversation="talk"))
            slowest, answers = 0.0, 0
            while time.monotonic() < end:
                began = time.monotonic()
                answer = await it.chat(key=key)
                assert answer.status_code == 200, answer.text
                slowest, answers = max(slowest, time.monotonic() - began), answers + 1
            assert not second.done()
        assert (await asyncio.wait_for(second, 10)).status_code == 200
        third = await it.chat(content="three", key=key, x_baton_conversation="talk")
        assert third.status_code == 200
    assert answers > 20
    assert slowest < LOCKED_S / 2
    turns = [message["content"] for message in upstream.requests[-1].json()["messages"]]
    assert turns == ["one", "yes", "two", "yes", "three"]
