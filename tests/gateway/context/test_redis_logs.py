"""What only Redis does: expiry by the server's clock. Time is moved by setting expiries, so nothing here waits."""

import pytest

from gateway.context.config import ConversationConfig
from gateway.context.conversations import Conversations
from gateway.context.errors import ContextUnavailable
from gateway.context.logs import Bounds, Segment
from gateway.context.redis_logs import RedisLogs
from gateway.store.redis import RedisConfig, RedisStore
from tests.redis_server import RedisServer

WIDE = Bounds(items=1000, size=1 << 20)
KEY = b"k" * 32


async def only_key(redis: RedisStore) -> bytes:
    (name,) = await redis.call("KEYS", "*")
    assert isinstance(name, bytes)
    return name


async def test_every_write_sets_the_expiry_with_the_data(redis: RedisStore) -> None:
    logs = RedisLogs(redis, "s")
    await logs.append(KEY, Segment(b"a", 1, 1), expected=None, bounds=WIDE, ttl_s=100)
    name = await only_key(redis)
    assert 90_000 < await redis.call("PTTL", name) <= 100_000
    await logs.put(KEY, Segment(b"a", 1, 1), ttl_s=50)
    assert 40_000 < await redis.call("PTTL", name) <= 50_000


async def test_a_read_begins_the_time_anew_only_when_told(redis: RedisStore) -> None:
    logs = RedisLogs(redis, "s")
    await logs.append(KEY, Segment(b"a", 1, 1), expected=None, bounds=WIDE, ttl_s=100)
    name = await only_key(redis)
    await redis.call("PEXPIRE", name, 30_000)
    await logs.read(KEY)
    assert 20_000 < await redis.call("PTTL", name) <= 30_000
    log = await logs.read(KEY, refresh_s=100)
    assert log is not None
    assert 90_000 < await redis.call("PTTL", name) <= 100_000
    assert log.expires_at - log.created_at == pytest.approx(100, abs=10)


async def test_an_expired_log_is_gone_and_begins_anew(redis: RedisStore) -> None:
    logs = RedisLogs(redis, "s")
    await logs.append(KEY, Segment(b"a", 1, 1), expected=None, bounds=WIDE, ttl_s=100)
    await redis.call("PEXPIRE", await only_key(redis), 0)
    assert await logs.read(KEY, refresh_s=100) is None
    assert await logs.append(KEY, Segment(b"b", 1, 1), expected=0, bounds=WIDE, ttl_s=100) == 1


async def test_a_refused_write_does_not_prolong_the_life(redis: RedisStore) -> None:
    logs = RedisLogs(redis, "s")
    await logs.append(KEY, Segment(b"a", 1, 1), expected=None, bounds=WIDE, ttl_s=100)
    name = await only_key(redis)
    await redis.call("PEXPIRE", name, 30_000)
    for bounds, expected in ((Bounds(1, 1), None), (WIDE, 7)):
        with pytest.raises(Exception, match=r"limit is 1|version 7"):
            await logs.append(KEY, Segment(b"b", 1, 1), expected=expected, bounds=bounds, ttl_s=100)
    assert await redis.call("PTTL", name) <= 30_000


async def test_names_tell_neither_tenant_nor_id(redis: RedisStore) -> None:
    conversations = Conversations(RedisLogs(redis, "conversations"), ConversationConfig())
    await conversations.append("acme", "payroll", [b"{}"])
    name = await only_key(redis)
    assert name.startswith(b"baton:conversations:")
    assert b"acme" not in name
    assert b"payroll" not in name


async def test_a_dead_server_is_an_error_that_says_so() -> None:
    with RedisServer() as server:
        redis = RedisStore(RedisConfig(url=server.url))
        conversations = Conversations(RedisLogs(redis, "conversations"), ConversationConfig())
        await conversations.append("acme", "chat", [b"{}"])
        server.stop()
        for call in (conversations.get("acme", "chat"), conversations.append("acme", "chat", [b"{}"])):
            with pytest.raises(ContextUnavailable, match="The conversation cannot be reached") as caught:
                await call
            assert (caught.value.status, caught.value.code) == (503, "context_unavailable")
            assert caught.value.headers["retry-after"] == "1"
        with pytest.raises(ContextUnavailable):
            await conversations.delete("acme", "chat")
        await redis.close()
