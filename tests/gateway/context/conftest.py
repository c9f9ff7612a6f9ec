"""Both stores, behind one fixture, and a clock that only moves when a test says so."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from gateway.context.logs import LogStore
from gateway.context.redis_logs import RedisLogs
from gateway.context.sqlite_logs import SqliteLogs
from gateway.store.redis import RedisConfig, RedisStore
from gateway.store.sqlite import Database
from tests.gateway.context.clock import Clock
from tests.redis_server import RedisServer

ROOMY = 1 << 40


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(RedisConfig(url=redis_server.url, timeout_s=5.0))
    await store.call("FLUSHALL")
    yield store
    await store.close()


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(str(tmp_path / "baton.db"))
    yield database
    await database.close()


OpenLogs = Callable[[str], LogStore]


@pytest.fixture(params=["sqlite", "redis"])
def open_logs(request: pytest.FixtureRequest) -> OpenLogs:
    """Opens a space of the store under test."""
    if request.param == "redis":
        redis: RedisStore = request.getfixturevalue("redis")
        return lambda space: RedisLogs(redis, space)
    database: Database = request.getfixturevalue("database")
    return lambda space: SqliteLogs(database, space, max_bytes=ROOMY)


@pytest.fixture
def logs(open_logs: OpenLogs) -> LogStore:
    return open_logs("conversations")
