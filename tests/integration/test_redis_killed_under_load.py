"""Redis dies and comes back under load, with limits and a shared cache on: what was cached is missed, and nothing fails."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.events import MODELS, whole
from tests.integration.in_process import Gateway, serving, until
from tests.integration.remote_toml import one
from tests.redis_server import RedisServer, find_server
from tests.upstream import scripted

ALLOWANCE = {
    "requests_per_minute": 1_000_000,
    "tokens_per_minute": 1_000_000_000,
    "concurrency": 64,
    "budget_usd": 1_000_000.0,
}
CONFIG = """
[prices.chat]
input_per_mtok = 1.0
output_per_mtok = 2.0

[response_cache]
shared = true
memory_bytes = 0

[store]
path = "baton.db"
redis_url = "{url}"
"""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    if find_server() is None:
        pytest.skip("no Redis-compatible server is installed: make test")
    with RedisServer() as server:
        yield server


class Load:
    """Clients that ask again and again: some for a cached answer, all with a key that has limits."""

    def __init__(self, it: Gateway, key: str) -> None:
        self._it, self._key, self._stop = it, key, asyncio.Event()
        self.statuses: Counter[int] = Counter()
        self.cache: Counter[str] = Counter()
        self.errors: list[str] = []
        self._tasks = [asyncio.create_task(self._ask(number)) for number in range(8)]

    async def _ask(self, number: int) -> None:
        while not self._stop.is_set():
            headers = {"x_baton_cache": "use"} if number % 2 else {}
            answer = await self._it.chat(content=f"question {number}", key=self._key, temperature=0, **headers)
            self.statuses[answer.status_code] += 1
            self.cache[answer.headers.get("x-baton-cache", "")] += 1
            if answer.status_code != 200:
                self.errors.append(answer.text)

    async def more(self, count: int) -> None:
        """Wait for so many further answers."""
        goal = self.statuses.total() + count
        await until(lambda: self.statuses.total() >= goal or self.errors)

    async def hit(self) -> None:
        """Wait for a further answer from the cache."""
        before = self.cache["hit"]
        await until(lambda: self.cache["hit"] > before or self.errors)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)


async def test_nothing_fails_but_the_cache_misses(tmp_path: Path, redis: RedisServer) -> None:
    async with scripted(whole(), checks=MODELS) as upstream:
        text = one(upstream.url) + CONFIG.format(url=redis.url)
        async with serving(tmp_path, text, BATON_ADMIN_KEY="boss") as it:
            limiter = it.services.stores.limiter
            load = Load(it, await it.create_key(name="load", allowance=ALLOWANCE))
            await load.more(50)
            await load.hit()
            assert limiter.is_shared
            redis.stop()
            await load.more(50)
            hits, misses = load.cache["hit"], load.cache["miss"]
            await load.more(100)
            assert not limiter.is_shared
            assert load.cache["hit"] == hits
            assert load.cache["miss"] > misses
            await asyncio.to_thread(redis.start)
            await until(lambda: limiter.is_shared)
            await load.hit()
            await load.more(50)
            await load.stop()
            assert limiter.fallbacks_total > 0
    assert load.errors == []
    assert set(load.statuses) == {200}
