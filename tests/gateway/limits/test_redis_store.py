"""The Redis wrapper against a real server: answers, bounds, breaker and secrets."""

import asyncio
import logging
import time

import pytest
from msgspec.structs import replace

from gateway.store.errors import StoreDown
from gateway.store.redis import Breaker, RedisConfig, RedisStore
from tests.gateway.limits.conftest import Fleet
from tests.redis_server import RedisServer


async def test_commands_and_pipelines_answer(fleet: Fleet) -> None:
    store = fleet.store(timeout_s=2)
    assert await store.call("SET", store.key("a", "b"), "x", "EX", 60) == b"OK"
    assert await store.call("GET", "baton:a:b") == b"x"
    assert await store.pipeline([("INCR", "n"), ("INCRBY", "n", 4), ("GET", "n")]) == [1, 5, b"5"]
    assert await store.pipeline([]) == []


async def test_a_script_is_sent_again_when_the_server_lost_it(fleet: Fleet) -> None:
    store = fleet.store(timeout_s=2)
    double = store.script("return ARGV[1] * 2")
    assert await double([], [4]) == 8
    await store.call("SCRIPT", "FLUSH")
    assert await double([], [5]) == 10
    assert await double([], [6]) == 12


async def test_more_callers_than_connections_are_all_served(fleet: Fleet) -> None:
    store = fleet.store(timeout_s=5)
    await asyncio.gather(*(store.call("INCR", "callers") for _ in range(300)))
    assert await store.call("GET", "callers") == b"300"


async def test_an_error_reply_is_no_answer(fleet: Fleet) -> None:
    store = fleet.store(timeout_s=2)
    await store.call("SET", "text", "x")
    with pytest.raises(StoreDown, match="ResponseError"):
        await store.call("LPUSH", "text", "y")


async def test_a_frozen_server_answers_within_the_bound_and_never_with_a_stale_reply(fleet: Fleet, server: RedisServer) -> None:
    store = fleet.store(max_failures=100)
    await store.call("SET", "a", "1")
    server.freeze()
    try:
        began = time.monotonic()
        with pytest.raises(StoreDown):
            await store.call("GET", "a")
        assert 0.04 < time.monotonic() - began < 0.5
    finally:
        server.thaw()
    patient = fleet.store(timeout_s=5)
    await patient.call("SET", "b", "2")
    while True:
        try:
            assert await store.call("GET", "b") == b"2"
            break
        except StoreDown:
            await asyncio.sleep(0.01)


async def test_a_cancelled_command_leaves_no_reply_for_the_next_one(fleet: Fleet) -> None:
    store = fleet.store(timeout_s=5)
    await store.call("SET", "b", "2")
    blocked = asyncio.create_task(store.call("BLPOP", "nothing", 0.2))
    await asyncio.sleep(0.05)
    blocked.cancel()
    await asyncio.gather(blocked, return_exceptions=True)
    assert await asyncio.gather(*(store.call("GET", "b") for _ in range(5))) == [b"2"] * 5


async def test_a_dead_server_is_left_alone_and_found_again() -> None:
    now = 0.0
    with RedisServer() as server:
        store = RedisStore(RedisConfig(url=server.url, timeout_s=2, max_failures=2), lambda: now)
        assert await store.call("PING") == b"PONG"
        server.stop()
        for available in (True, False):
            with pytest.raises(StoreDown, match="Error"):
                await store.call("PING")
            assert store.available is available
        server.start()
        with pytest.raises(StoreDown, match="is down"):
            await store.call("PING")
        assert store.failures_total == 2
        now = 1.5
        assert await store.call("PING") == b"PONG"
        assert store.available
        await store.close()
        await store.close()


async def test_a_probe_that_its_caller_gave_up_is_made_by_the_next_one() -> None:
    now = 0.0
    with RedisServer() as server:
        store = RedisStore(RedisConfig(url=server.url, timeout_s=2, max_failures=1), lambda: now)
        server.stop()
        with pytest.raises(StoreDown):
            await store.call("PING")
        server.start()
        now = 1.5
        server.freeze()
        probe = asyncio.create_task(store.call("PING"))
        await asyncio.sleep(0.05)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        server.thaw()
        assert await store.call("PING") == b"PONG"
        await store.close()


async def test_the_password_is_used_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with RedisServer(password="s3cret") as server:
        config = RedisConfig(url=server.url, timeout_s=2, max_failures=1)
        store = RedisStore(config)
        assert await store.call("PING") == b"PONG"
        wrong = RedisStore(replace(config, url=server.url.replace("s3cret", "wr0ng")))
        with pytest.raises(StoreDown) as refused:
            await wrong.call("PING")
        assert not wrong.available
        await store.close()
        await wrong.close()
    shown = caplog.text + repr(config) + str(config) + str(refused.value) + config.address
    assert "127.0.0.1" in shown
    assert "s3cret" not in shown
    assert "wr0ng" not in shown


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "memcached://x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="redis://"):
        RedisConfig(url=url)


def test_the_breaker_probes_once_per_interval() -> None:
    now = 0.0
    breaker = Breaker(3, 1.0, lambda: now)
    assert [breaker.allows() and breaker.fail() for _ in range(4)] == [False, False, True, False]
    assert not breaker.is_closed
    now = 1.1
    assert [breaker.allows(), breaker.allows()] == [True, False]
    assert not breaker.fail()
    now = 2.2
    assert breaker.allows()
    breaker.forget()
    assert breaker.allows()
    assert breaker.succeed()
    assert breaker.is_closed
