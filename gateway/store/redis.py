"""Redis, kept at arm's length: every command answers within a bound or raises `StoreDown`, so nobody waits for a sick store.

A thin wrapper over redis-py's asyncio client, which is an optional dependency and imported only when a store is built. A small
circuit breaker spares requests the wait once the server does not answer: after a few failures in a row all commands fail at
once, and one at a time probes whether the server is back. The URL may hold a password, and never reaches a log line.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from gateway.store.errors import StoreDown

logger = logging.getLogger("gateway.store.redis")

Argument = bytes | str | int | float

MAX_CONNECTIONS = 64
_CLOSE_TIMEOUT_S = 2.0
_SCHEMES = ("redis", "rediss", "unix")


class RedisConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[redis]`. `timeout_s` bounds each command, connecting included; `prefix` begins the name of every key.

    After `max_failures` failures in a row the server is left alone, but for one probe every `retry_interval_s`.
    """

    url: str
    timeout_s: Annotated[float, Meta(gt=0, le=5)] = 0.25
    prefix: Annotated[str, Meta(min_length=1, max_length=64)] = "baton"
    max_failures: Annotated[int, Meta(ge=1, le=100)] = 3
    retry_interval_s: Annotated[float, Meta(gt=0, le=60)] = 1.0

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in _SCHEMES:
            raise ValueError("url must begin with redis://, rediss:// or unix://")

    def __repr__(self) -> str:
        return f"RedisConfig(url={self.address!r}, timeout_s={self.timeout_s}, prefix={self.prefix!r})"

    @property
    def address(self) -> str:
        """The URL without user, password and query, for logs."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class RedisStore:
    """A Redis (or Valkey) server. Opens no connection before the first command.

    Args:
        clock: monotonic seconds, for the breaker.

    Raises:
        ModuleNotFoundError: redis-py is not installed.
    """

    def __init__(self, config: RedisConfig, clock: Callable[[], float] = monotonic) -> None:
        from redis import exceptions
        from redis.asyncio import ConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        self.config = config
        self.failures_total = 0
        self._error_class: type[Exception] = exceptions.RedisError
        self._no_script_class: type[Exception] = exceptions.NoScriptError
        self._pool = ConnectionPool.from_url(
            config.url, max_connections=MAX_CONNECTIONS, retry=Retry(NoBackoff(), 0), protocol=2
        )
        self._client = Redis.from_pool(self._pool)
        # Replies as the server sends them, whatever a version of the client makes of each command.
        self._client.response_callbacks.clear()
        self._execute: Callable[..., Awaitable[Any]] = self._client.execute_command
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._breaker = Breaker(config.max_failures, config.retry_interval_s, clock)

    @property
    def available(self) -> bool:
        """Whether commands are sent; False while the breaker is open."""
        return self._breaker.is_closed

    def key(self, *parts: str) -> str:
        """Name a key: the configured prefix and the parts, joined by colons."""
        return ":".join((self.config.prefix, *parts))

    async def call(self, *args: Argument) -> Any:
        """Run one command, such as `call("GET", key)`, and return its RESP2 reply: bytes, int, list or None.

        Raises:
            StoreDown: no answer within `timeout_s`, no connection, an error reply, or the breaker is open.
        """
        return await self._bounded(lambda: self._execute(*args))

    async def pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run several commands in one round trip, not as a transaction; results are in order. Raises like `call`."""

        async def run() -> list[Any]:
            async with self._client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                results: list[Any] = await pipe.execute()
                return results

        results: list[Any] = await self._bounded(run)
        return results

    def script(self, lua: str) -> "Script":
        """Make a Lua script callable. It is sent once, and again when the server has lost it."""
        return Script(self, lua)

    async def evaluate(self, lua: str, sha: str, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run a script by its digest, or by its text where the server does not know it. Raises like `call`."""
        rest = (len(keys), *keys, *args)

        async def run() -> Any:
            try:
                return await self._execute("EVALSHA", sha, *rest)
            except self._no_script_class:
                return await self._execute("EVAL", lua, *rest)

        return await self._bounded(run)

    async def close(self) -> None:
        """Close all connections. May be called twice."""
        # redis-py waits for each socket to be gone, for as long as that takes.
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._client.aclose()
                await self._pool.aclose()

    async def _bounded(self, run: Callable[[], Awaitable[Any]]) -> Any:
        if not self._breaker.allows():
            raise StoreDown(f"{self.config.address} is down")
        try:
            async with asyncio.timeout(self.config.timeout_s), self._room:
                result = await run()
        except (self._error_class, OSError, TimeoutError) as error:
            self._failed(error)
            raise StoreDown(f"{self.config.address}: {type(error).__name__}") from error
        except BaseException:
            self._breaker.forget()
            raise
        if self._breaker.succeed():
            logger.warning("%s answers again", self.config.address)
        return result

    def _failed(self, error: Exception) -> None:
        self.failures_total += 1
        if self._breaker.fail():
            logger.warning("%s does not answer: %s: %s", self.config.address, type(error).__name__, error)


class Script:
    """A Lua script of a store."""

    def __init__(self, store: RedisStore, lua: str) -> None:
        self._store, self._lua = store, lua
        self._sha = hashlib.sha1(lua.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run it. Raises like `RedisStore.call`."""
        return await self._store.evaluate(self._lua, self._sha, keys, args)


class Breaker:
    """Opens after `max_failures` in a row; then lets one probe through every `retry_interval_s`."""

    def __init__(self, max_failures: int, retry_interval_s: float, clock: Callable[[], float]) -> None:
        self._max_failures, self._retry_interval_s, self._clock = max_failures, retry_interval_s, clock
        self._failures = 0
        self._next_probe = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether everything is let through."""
        return self._failures < self._max_failures

    def allows(self) -> bool:
        """Whether a command may be sent now; of an open breaker, the one that hears True is the probe."""
        if self.is_closed:
            return True
        now = self._clock()
        if now < self._next_probe:
            return False
        self._next_probe = now + self._retry_interval_s
        return True

    def fail(self) -> bool:
        """Note a failure; says whether it opened the breaker."""
        self._failures += 1
        self._next_probe = self._clock() + self._retry_interval_s
        return self._failures == self._max_failures

    def succeed(self) -> bool:
        """Note a success; says whether it closed the breaker."""
        was_closed, self._failures = self.is_closed, 0
        return not was_closed

    def forget(self) -> None:
        """Note that a command was given up by its caller: the next one may be a probe."""
        self._next_probe = 0.0
