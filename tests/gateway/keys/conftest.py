"""Stores of both kinds, and a clock that the test moves."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.keys.redis_store import RedisKeyStore
from gateway.keys.sqlite_store import SqliteKeyStore
from gateway.keys.store import KeyStore
from gateway.store.redis import RedisConfig, RedisStore
from gateway.store.sqlite import Database
from tests.gateway.keys.stand_ins import Clock, Switch
from tests.redis_server import RedisServer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(str(tmp_path / "baton.db"))
    yield database
    await database.close()


@pytest.fixture
def switch(database: Database) -> Switch:
    return Switch(SqliteKeyStore(database))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
async def make_store(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[object]:
    """Make a store of either kind; all stores of one test share what they hold."""
    if request.param == "sqlite":
        yield lambda **options: SqliteKeyStore(database, **options)
        return
    server = request.getfixturevalue("redis_server")
    redis = RedisStore(RedisConfig(url=server.url, timeout_s=5))
    await redis.call("FLUSHALL")
    yield lambda **options: RedisKeyStore(redis, **options)
    await redis.close()


@pytest.fixture
def store(make_store) -> KeyStore:
    return make_store()
