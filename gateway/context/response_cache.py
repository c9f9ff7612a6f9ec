"""Gives an answer again to the same request of the same tenant.

In front is this process's memory, behind it, if configured, the store that all gateways share. A store that does not answer, or
returns what nobody wrote, is a miss. Of equal requests at the same time one is answered by a model and the others wait for it,
each no longer than `wait_s`: afterwards it goes on by itself, so a slow or broken first request delays the others and no more.
"""

import logging
import time
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Self

import msgspec

from gateway.context.answer_memory import AnswerMemory
from gateway.context.cached_answer import CachedAnswer, Endpoint, is_complete
from gateway.context.codec import Damaged
from gateway.context.config import ResponseCacheConfig
from gateway.context.flights import Flights
from gateway.context.items import pack, unpack
from gateway.context.logs import LogStore, Segment
from gateway.store.errors import StoreDown

logger = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]

_ANSWER = msgspec.msgpack.Decoder(CachedAnswer)

MISS_HEADERS: Headers = [(b"x-baton-cache", b"miss")]


class Lease:
    """The right to fill one place of the cache, and the duty to say when that is over: leave the `with` block.

    Args:
        release: tells those who wait whether to look again; None when nobody waits.
    """

    def __init__(self, cache: "ResponseCache", key: bytes, endpoint: Endpoint, release: Callable[[bool], None] | None) -> None:
        self._cache = cache
        self._key = key
        self._endpoint = endpoint
        self._release = release
        self._look_again = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._release is not None:
            self._release(self._look_again)
            self._release = None

    async def keep(self, body: bytes) -> bool:
        """Keep a complete JSON body; False when it cannot be given again or is too large. Never raises.

        Not for answers of a model that stood in for the one that was asked for.
        """
        self._look_again = await self._cache.put(self._key, self._endpoint, body)
        return self._look_again


class ResponseCache:
    """The kept answers of all tenants; keys come from `cache_key`.

    Args:
        store: the shared level; None has none.
        clock: Unix seconds, for ages, which must hold across processes.
        ticks: monotonic seconds, for waiting.
    """

    def __init__(
        self,
        config: ResponseCacheConfig,
        store: LogStore | None = None,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = monotonic,
    ) -> None:
        self.config = config
        self.hits_total = 0
        self.misses_total = 0
        self.memory = AnswerMemory(config.memory_bytes, config.ttl_s)
        self._store = store
        self._clock = clock
        self._ticks = ticks
        self._flights = Flights(ticks)

    async def begin(self, key: bytes, endpoint: Endpoint) -> CachedAnswer | Lease:
        """Find an answer, or become the one who provides it. May wait for an equal request, `wait_s` at most."""
        deadline = self._ticks() + self.config.wait_s
        while True:
            answer = await self._find(key)
            if answer is not None:
                self.hits_total += 1
                return answer
            if self._flights.enter(key):
                self.misses_total += 1
                return Lease(self, key, endpoint, lambda look_again: self._flights.leave(key, look_again=look_again))
            if not await self._flights.wait(key, deadline):
                self.misses_total += 1
                return self.refresh(key, endpoint)

    def refresh(self, key: bytes, endpoint: Endpoint) -> Lease:
        """Provide a new answer whatever there is; nobody waits for it."""
        return Lease(self, key, endpoint, None)

    async def put(self, key: bytes, endpoint: Endpoint, body: bytes) -> bool:
        """See `Lease.keep`."""
        if len(body) > self.config.max_entry_bytes or not is_complete(endpoint, body):
            return False
        answer = CachedAnswer(endpoint, body, self._clock())
        is_here = self.memory.put(key, answer)
        return (self._store is not None and await self._share(self._store, key, answer)) or is_here

    def hit_headers(self, answer: CachedAnswer) -> Headers:
        """What a response from the cache says about that. Source: RFC 9111, section 5.1, "Age"."""
        return [(b"x-baton-cache", b"hit"), (b"age", b"%d" % answer.age_s(self._clock()))]

    async def _find(self, key: bytes) -> CachedAnswer | None:
        now = self._clock()
        answer = self.memory.get(key, now)
        if answer is None and self._store is not None:
            answer = await self._fetch(self._store, key, now)
        return answer

    async def _share(self, store: LogStore, key: bytes, answer: CachedAnswer) -> bool:
        size = len(answer.body)
        try:
            await store.put(key, Segment(await pack(answer, size), 1, size), ttl_s=self.config.ttl_s)
        except StoreDown as error:
            logger.debug("an answer was not shared: %s", error)
            return False
        return True

    async def _fetch(self, store: LogStore, key: bytes, now: float) -> CachedAnswer | None:
        try:
            log = await store.read(key)
            answers = [] if log is None else await unpack(log.segments, _ANSWER)
        except (StoreDown, Damaged) as error:
            logger.debug("a shared answer was not read: %s", error)
            return None
        if len(answers) != 1 or now >= answers[0].stored_at + self.config.ttl_s:
            return None
        self.memory.put(key, answers[0])
        return answers[0]
