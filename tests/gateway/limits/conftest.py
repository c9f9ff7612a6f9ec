"""A real Redis-compatible server, and what the tests of limits have in common."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.call import Call
from gateway.identity import Allowance, Identity
from gateway.limits.config import LimitsConfig
from gateway.limits.local import LocalLimiter
from gateway.limits.prices import Price
from gateway.limits.redis_limiter import RedisLimiter
from gateway.limits.spend import SqliteSpend
from gateway.store.redis import RedisConfig, RedisStore
from gateway.store.sqlite import Database
from tests.redis_server import RedisServer

PRICES = {"model": Price(input_per_mtok=1.0, output_per_mtok=2.0)}


def new_identity(key: str = "key", **allowance: Any) -> Identity:
    return Identity(key_id=key, tenant=key, allowance=Allowance(**allowance))


def new_call(prompt_tokens: int = 0, max_tokens: int = 0) -> Call:
    call = Call("id", "chat", "model")
    call.prompt_tokens, call.max_tokens = prompt_tokens, max_tokens
    return call


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is true, at most half a minute."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never became true")


class Fleet:
    """Builds gateways that share one Redis, each with a memory of its own, and closes them."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url, self._stack = url, stack

    def store(self, **config: Any) -> RedisStore:
        store = RedisStore(RedisConfig(url=self.url, **config))
        self._stack.push_async_callback(store.close)
        return store

    def limiter(
        self, *, path: str = ":memory:", share: float = 1.0, lease_s: float = 30.0, timeout_s: float = 1.0, **config: Any
    ) -> RedisLimiter:
        """A gateway's limiter; patient by default, so that a busy test machine does not look like an outage."""
        database = Database(path)
        self._stack.push_async_callback(database.close)
        local = LocalLimiter(LimitsConfig(lease_s=lease_s), SqliteSpend(database), prices=PRICES, share=share)
        limiter = RedisLimiter(self.store(timeout_s=timeout_s, **config), local)
        self._stack.push_async_callback(limiter.close)
        return limiter


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
async def fleet(server: RedisServer) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        fleet = Fleet(server.url, stack)
        await fleet.store(timeout_s=5).call("FLUSHALL")
        yield fleet
