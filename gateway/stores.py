"""What outlives a request: keys, spending, conversations, stored responses and answers, in SQLite or in Redis."""

import os
from collections.abc import Mapping

from gateway.config import Settings
from gateway.config_sources.reader import ConfigError
from gateway.context.conversations import Conversations
from gateway.context.logs import LogStore
from gateway.context.redis_logs import RedisLogs
from gateway.context.response_cache import ResponseCache
from gateway.context.responses_store import StoredResponses
from gateway.context.sqlite_logs import SqliteLogs
from gateway.identity import Identity
from gateway.keys.build import build_key_store
from gateway.keys.manager import KeyManager
from gateway.keys.ring import KeyRing
from gateway.keys.static import static_identities
from gateway.limits.limiter import Limiter
from gateway.limits.local import LocalLimiter
from gateway.limits.redis_limiter import RedisLimiter
from gateway.limits.spend import SqliteSpend
from gateway.store.config import database_path
from gateway.store.redis import RedisConfig, RedisStore
from gateway.store.sqlite import Database


class Stores:
    """Built from the settings, opened by the first use, closed last.

    Where Redis is configured, what several gateways must share lives there: limits, conversations, responses and answers.

    Raises:
        ConfigError: Redis is asked for and missing, or not installed.
    """

    def __init__(self, settings: Settings, *, environ: Mapping[str, str] = os.environ) -> None:
        self.database = Database(database_path(settings.store, environ))
        self.redis = _redis(settings)
        try:
            key_store = build_key_store(settings.keys, self.database, self.redis)
        except ValueError as error:
            raise ConfigError([str(error)]) from None
        self.ring = KeyRing(key_store, _static(settings), required=settings.keys.required, refresh_s=settings.keys.refresh_s)
        self.keys = KeyManager(key_store, self.ring)
        # Without Redis the workers of one gateway cannot count together, so each gives away its part.
        share = 1 / settings.server.workers
        self._local = LocalLimiter(settings.limits, SqliteSpend(self.database), prices=settings.prices, share=share)
        self.limiter: Limiter = self._local if self.redis is None else RedisLimiter(self.redis, self._local)
        context = settings.conversations
        self.conversations = Conversations(self._logs("conversations", context.store_bytes), context)
        self.responses = StoredResponses(self._logs("responses", context.store_bytes), context)
        self.chats = Conversations(self._logs("chats", context.store_bytes), context)
        cache = settings.response_cache
        self.answers = ResponseCache(cache, self._logs("answers", cache.store_bytes) if cache.shared else None)

    async def start(self) -> None:
        """Read the keys, and keep following them."""
        await self.ring.start()

    def follow(self, settings: Settings) -> None:
        """Take over what may change while the gateway runs: the configured keys and the prices."""
        self.ring.replace_static(_static(settings))
        self._local.prices = settings.prices

    async def close(self) -> None:
        """Write down what must last, and close everything."""
        await self.ring.close()
        await self.limiter.close()
        if self.redis is not None:
            await self.redis.close()
        await self.database.close()

    def _logs(self, space: str, max_bytes: int) -> LogStore:
        return SqliteLogs(self.database, space, max_bytes=max_bytes) if self.redis is None else RedisLogs(self.redis, space)


def _static(settings: Settings) -> dict[bytes, Identity]:
    return static_identities(settings.api_key_digests | settings.admin_key_digests, settings.admin_key_digests)


def _redis(settings: Settings) -> RedisStore | None:
    url = settings.store.redis_url
    if not url:
        return None
    try:
        return RedisStore(RedisConfig(url=url, timeout_s=settings.store.redis_timeout_s))
    except ModuleNotFoundError as error:
        missing = f"store.redis_url: Redis needs {error.name}, which is not installed. Run: pip install 'baton-llm[redis]'"
        raise ConfigError([missing]) from error
    except ValueError as error:
        raise ConfigError([f"store.redis_url: {error}"]) from None
