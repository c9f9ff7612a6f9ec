"""Keys in Redis, for gateways on several machines: one hash per key, two sorted sets of ids and a counter of changes.

What must happen together happens in one script. All names share a hash tag, so that a cluster keeps them on one node.
"""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Protocol

from gateway.keys.record import KeyRecord, StoredRow, decode_record, decode_records, encode_record
from gateway.keys.store import MAX_KEYS, TooManyKeys

_READ_AT_ONCE = 100

_ADD = """
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  local oldest = redis.call('ZPOPMIN', KEYS[2])
  if #oldest == 0 then return 0 end
  redis.call('ZREM', KEYS[1], oldest[1])
  redis.call('DEL', ARGV[2] .. oldest[1])
end
redis.call('HSET', KEYS[4], 'record', ARGV[5])
redis.call('ZADD', KEYS[1], ARGV[4], ARGV[3])
redis.call('INCR', KEYS[3])
return 1
"""
_REVOKE = """
if redis.call('EXISTS', KEYS[3]) == 0 then return 0 end
if redis.call('HSETNX', KEYS[3], 'revoked_at', ARGV[2]) == 1 then
  redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
  redis.call('INCR', KEYS[2])
end
return 1
"""
_READ = """
local found = {}
for i, key in ipairs(KEYS) do found[i] = redis.call('HMGET', key, 'record', 'revoked_at', 'last_used_at') end
return found
"""
_TOUCH = """
for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'last_used_at', ARGV[1]) end
end
return 0
"""


class Redis(Protocol):
    """The part of the Redis client that is needed here."""

    async def call(self, *args: Any) -> Any:
        """Send one command and return its answer. Raises `StoreDown`."""
        ...


class RedisKeyStore:
    """A `KeyStore`. `prefix` begins every name, so that several gateways can use one server apart."""

    def __init__(self, redis: Redis, *, prefix: str = "baton", max_keys: int = MAX_KEYS) -> None:
        self._redis = redis
        self._max_keys = max_keys
        self._stem = f"{prefix}:{{keys}}:"
        self._ids = f"{self._stem}ids"
        self._revoked = f"{self._stem}revoked"
        self._version = f"{self._stem}version"

    async def add(self, record: KeyRecord) -> None:
        """Store a new record. Raises `TooManyKeys`."""
        names = (self._ids, self._revoked, self._version, self._stem + record.id)
        values = (self._max_keys, self._stem, record.id, record.created_at, encode_record(record))
        if not await self._redis.call("EVAL", _ADD, len(names), *names, *values):
            raise TooManyKeys(self._max_keys)

    async def get(self, key_id: str) -> KeyRecord | None:
        """Return one record, revoked or not."""
        row = next(await self._rows([key_id]), None)
        return None if row is None else decode_record(row)

    async def all(self) -> list[KeyRecord]:
        """Return all records, oldest first."""
        ids = iter([_text(key_id) for key_id in await self._redis.call("ZRANGE", self._ids, 0, -1)])
        records: list[KeyRecord] = []
        while some := list(islice(ids, _READ_AT_ONCE)):
            records += decode_records(await self._rows(some))
        return records

    async def revoke(self, key_id: str, at: int) -> KeyRecord | None:
        """Revoke a key, and return it."""
        names = (self._revoked, self._version, self._stem + key_id)
        if not await self._redis.call("EVAL", _REVOKE, len(names), *names, key_id, at):
            return None
        return await self.get(key_id)

    async def touch(self, key_ids: Collection[str], at: int) -> None:
        """Note that keys were used."""
        ids = iter(key_ids)
        while names := [self._stem + key_id for key_id in islice(ids, _READ_AT_ONCE)]:
            await self._redis.call("EVAL", _TOUCH, len(names), *names, at)

    async def version(self) -> int:
        """Return the number of changes so far."""
        return int(await self._redis.call("GET", self._version) or 0)

    async def _rows(self, key_ids: list[str]) -> Iterator[StoredRow]:
        names = [self._stem + key_id for key_id in key_ids]
        rows = await self._redis.call("EVAL", _READ, len(names), *names)
        return ((record, _number(revoked), _number(used)) for record, revoked, used in rows if record is not None)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode()
