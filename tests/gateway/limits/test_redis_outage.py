"""Redis dies, freezes and comes back under load: no request fails for it, the local share decides, and all recovers alone."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from backends.types import Usage
from gateway.limits.refusals import RateLimited
from tests.gateway.limits.conftest import Fleet, new_call, new_identity, until
from tests.redis_server import RedisServer

BOUND_S = 0.05


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def test_a_server_killed_and_started_again_in_the_middle(own_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        limiter = Fleet(own_server.url, stack).limiter(share=0.5, timeout_s=1.0, retry_interval_s=0.05)
        key = new_identity(requests_per_minute=100_000, tokens_per_minute=10_000_000, concurrency=64, budget_usd=1000.0)
        stop, done = asyncio.Event(), 0

        async def client() -> None:
            nonlocal done
            while not stop.is_set():
                reservation = await limiter.reserve(key, new_call(10, 10))
                await asyncio.sleep(0.001)
                await reservation.settle(Usage(10, 10), 0.001)
                done += 1

        async def reach(count: int) -> None:
            await until(lambda: done >= count)

        clients = [asyncio.create_task(client()) for _ in range(8)]
        await reach(50)
        assert limiter.is_shared
        own_server.stop()
        await reach(done + 200)
        assert not limiter.is_shared
        assert limiter.fallbacks_total > 0
        await asyncio.to_thread(own_server.start)
        await until(lambda: limiter.is_shared)
        await reach(done + 50)
        stop.set()
        await asyncio.gather(*clients)
        # Nobody was refused, and every cost is in the books of the server that had lost them.
        await (await limiter.reserve(key, new_call(1, 1))).settle(None, 0.0)
        await limiter.close()
        assert await _spent(own_server) == pytest.approx(done * 0.001)


async def _spent(server: RedisServer) -> float:
    """The one sum of money that a server holds."""
    async with AsyncExitStack() as stack:
        store = Fleet(server.url, stack).store(timeout_s=5)
        (name,) = [name for name in await store.call("KEYS", "*") if b"spent" in name]
        return float(await store.call("GET", name))


async def test_a_frozen_server_costs_each_request_no_more_than_the_bound(own_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        limiter = Fleet(own_server.url, stack).limiter(timeout_s=BOUND_S, max_failures=3, retry_interval_s=0.2)
        key = new_identity(requests_per_minute=1000)
        async with asyncio.timeout(10):
            while True:
                await limiter.reserve(key, new_call())
                if limiter.is_shared and not limiter.fallbacks_total:
                    break
        own_server.freeze()
        waits = []
        for _ in range(20):
            began = time.monotonic()
            await limiter.reserve(key, new_call())
            waits.append(time.monotonic() - began)
        own_server.thaw()
        assert max(waits) < BOUND_S + 0.2
        assert sorted(waits)[10] < 0.02
        assert not limiter.is_shared
        assert limiter.fallbacks_total == 20
        async with asyncio.timeout(20):
            while not limiter.is_shared:
                await limiter.reserve(key, new_call())
                await asyncio.sleep(0.02)


async def test_the_share_of_a_gateway_is_kept_while_redis_is_down(own_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        limiter = Fleet(own_server.url, stack).limiter(share=0.5, max_failures=1, retry_interval_s=60)
        own_server.stop()
        key = new_identity(requests_per_minute=10)
        reservations = [await limiter.reserve(key, new_call()) for _ in range(5)]
        with pytest.raises(RateLimited) as refused:
            await limiter.reserve(key, new_call())
        assert refused.value.headers["x-ratelimit-limit-requests"] == "5"
        assert dict(reservations[0].headers())[b"x-ratelimit-remaining-requests"] == b"4"
        assert limiter.fallbacks_total == 6


async def test_what_is_spent_while_redis_is_down_counts_once_when_it_is_back(own_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        fleet = Fleet(own_server.url, stack)
        ours, theirs = fleet.limiter(timeout_s=0.2, max_failures=1, retry_interval_s=0.05), fleet.limiter()
        key = new_identity(budget_usd=1.0)
        await (await theirs.reserve(key, new_call(1, 1))).settle(Usage(1, 1), 0.5)
        before = await ours.reserve(key, new_call(1, 1))
        own_server.freeze()
        # This one times out here and takes effect there when the server goes on.
        await before.settle(Usage(1, 1), 0.1)
        assert not ours.is_shared
        await (await ours.reserve(key, new_call(1, 1))).settle(Usage(1, 1), 0.2)
        own_server.thaw()
        async with asyncio.timeout(20):
            while not ours.is_shared:
                await asyncio.sleep(0.06)
                await (await ours.reserve(key, new_call(1, 1))).settle(None, 0.0)
        await ours.close()
        assert await _spent(own_server) == pytest.approx(0.8)


async def test_a_gateway_that_is_alone_with_a_dead_redis_keeps_budgets(own_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        limiter = Fleet(own_server.url, stack).limiter(max_failures=1, retry_interval_s=0.05)
        key = new_identity(budget_usd=1.0)
        await (await limiter.reserve(key, new_call(1, 1))).settle(Usage(1, 1), 0.4)
        own_server.stop()
        await (await limiter.reserve(key, new_call(1, 1))).settle(Usage(1, 1), 0.7)
        with pytest.raises(RateLimited, match=r"spent: \$1\.10"):
            await limiter.reserve(key, new_call(1, 1))
        await asyncio.to_thread(own_server.start)
        async with asyncio.timeout(20):
            while not limiter.is_shared:
                await asyncio.sleep(0.06)
                with contextlib.suppress(RateLimited):
                    await (await limiter.reserve(key, new_call(1, 1))).settle(None, 0.0)
        await limiter.close()
        assert await _spent(own_server) == pytest.approx(1.1)
