"""Chooses the store of keys that the configuration names."""

from gateway.keys.config import KeysConfig
from gateway.keys.redis_store import Redis, RedisKeyStore
from gateway.keys.sqlite_store import SqliteKeyStore
from gateway.keys.store import KeyStore
from gateway.store.sqlite import Database


def build_key_store(config: KeysConfig, database: Database, redis: Redis | None) -> KeyStore:
    """Build the store; nothing is opened yet.

    Raises:
        ValueError: keys are to be in Redis, and no Redis is configured.
    """
    if config.store == "sqlite":
        return SqliteKeyStore(database)
    if redis is None:
        raise ValueError('keys.store: is "redis", but no Redis server is configured')
    return RedisKeyStore(redis)
