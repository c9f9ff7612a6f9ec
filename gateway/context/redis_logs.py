"""Logs in Redis: a hash per log, every call one Lua script, so that a write, its version and its expiry are one.

A hash holds `v` (version), `n` (items), `b` (bytes), `c` (creation, Unix milliseconds) and one field per segment, named by the
version that added it. Times are the server's: several gateways share one clock. What all logs may take together is the server's
own `maxmemory`. Source: the Redis documentation, "Scripting with Lua" and `PEXPIRE`.
"""

from typing import Any

from gateway.context.bounds import check_bounds
from gateway.context.errors import Conflict
from gateway.context.logs import Bounds, Log, Segment
from gateway.store.redis import Argument, RedisStore

_NOW = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
"""

# KEYS: log. ARGV: milliseconds to live from now on, or 0 to leave the expiry alone.
_READ = (
    _NOW
    + """
local fields = redis.call('HGETALL', KEYS[1])
if #fields == 0 then return false end
if tonumber(ARGV[1]) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return {fields, now + redis.call('PTTL', KEYS[1])}
"""
)

# KEYS: log. ARGV: data, items, bytes, expected version or -1, most items, most bytes, milliseconds to live.
_APPEND = (
    _NOW
    + """
local state = redis.call('HMGET', KEYS[1], 'v', 'n', 'b', 'c')
local version, expected = tonumber(state[1] or 0), tonumber(ARGV[4])
if expected >= 0 and expected ~= version then return {'conflict', version, 0} end
local items, size = tonumber(state[2] or 0) + ARGV[2], tonumber(state[3] or 0) + ARGV[3]
if items > tonumber(ARGV[5]) or size > tonumber(ARGV[6]) then return {'full', items, size} end
version = version + 1
redis.call('HSET', KEYS[1], 'v', version, 'n', items, 'b', size, 'c', state[4] or now)
if #ARGV[1] > 0 then redis.call('HSET', KEYS[1], version, ARGV[1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[7])
return {'ok', version, 0}
"""
)

# KEYS: log. ARGV: data, items, bytes, milliseconds to live.
_PUT = (
    _NOW
    + """
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'v', 1, 'n', ARGV[2], 'b', ARGV[3], 'c', now)
if #ARGV[1] > 0 then redis.call('HSET', KEYS[1], 1, ARGV[1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
)


class RedisLogs:
    """The logs of one space of a Redis or Valkey server; a `LogStore`.

    Args:
        space: keeps kinds of logs apart (`conversations`).
    """

    def __init__(self, redis: RedisStore, space: str) -> None:
        self._redis = redis
        self._space = space
        self._read = redis.script(_READ)
        self._append = redis.script(_APPEND)
        self._put = redis.script(_PUT)

    async def read(self, key: bytes, *, refresh_s: float | None = None) -> Log | None:
        """See `LogStore`."""
        reply = await self._read([self._name(key)], [0 if refresh_s is None else _milliseconds(refresh_s)])
        return None if reply is None else _to_log(reply[0], reply[1])

    async def append(self, key: bytes, segment: Segment, *, expected: int | None, bounds: Bounds, ttl_s: float) -> int:
        """See `LogStore`."""
        wanted = -1 if expected is None else expected
        arguments: list[Argument] = [*segment, wanted, *bounds, _milliseconds(ttl_s)]
        verdict, first, second = await self._append([self._name(key)], arguments)
        if verdict == b"conflict":
            raise Conflict(wanted, first)
        if verdict == b"full":
            check_bounds(first, second, bounds, what="The conversation")
        version: int = first
        return version

    async def put(self, key: bytes, segment: Segment, *, ttl_s: float) -> None:
        """See `LogStore`."""
        await self._put([self._name(key)], [*segment, _milliseconds(ttl_s)])

    async def delete(self, key: bytes) -> bool:
        """See `LogStore`."""
        removed: int = await self._redis.call("DEL", self._name(key))
        return removed > 0

    def _name(self, key: bytes) -> str:
        return self._redis.key(self._space, key.hex())


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _to_log(fields: list[Any], expires_ms: int) -> Log:
    table: dict[bytes, bytes] = dict(zip(fields[::2], fields[1::2], strict=True))
    segments = sorted((int(name), data) for name, data in table.items() if name.isdigit())
    data = tuple(data for _, data in segments)
    return Log(int(table[b"v"]), data, int(table[b"c"]) / 1000, expires_ms / 1000)
