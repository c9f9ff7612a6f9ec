"""The response cache: hits, misses, bounds, waiting, and what happens when things break."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.answer_memory import ENTRY_BYTES, AnswerMemory
from gateway.context.cached_answer import CachedAnswer
from gateway.context.config import ResponseCacheConfig
from gateway.context.logs import Bounds, Log, LogStore, Segment
from gateway.context.response_cache import Lease, ResponseCache
from gateway.store.errors import StoreDown
from tests.gateway.context.clock import Clock
from tests.gateway.context.openai_answers import CHATS

KEY, OTHER = b"k" * 32, b"o" * 32
BODY = msgspec.json.encode(CHATS["text"])
LONG = msgspec.json.encode(CHATS["long text"])


class DownStore:
    """A store that never answers."""

    async def read(self, key: bytes, *, refresh_s: float | None = None) -> Log | None:
        raise StoreDown("down")

    async def append(self, key: bytes, segment: Segment, *, expected: int | None, bounds: Bounds, ttl_s: float) -> int:
        raise StoreDown("down")

    async def put(self, key: bytes, segment: Segment, *, ttl_s: float) -> None:
        raise StoreDown("down")

    async def delete(self, key: bytes) -> bool:
        raise StoreDown("down")


def make(clock: Clock, store: LogStore | None = None, **config: Any) -> ResponseCache:
    return ResponseCache(ResponseCacheConfig(**config), store, clock=clock)


async def fill(cache: ResponseCache, key: bytes = KEY, body: bytes = BODY) -> bool:
    lease = await cache.begin(key, "chat")
    assert isinstance(lease, Lease)
    with lease:
        return await lease.keep(body)


async def find(cache: ResponseCache, key: bytes = KEY) -> CachedAnswer | None:
    found = await cache.begin(key, "chat")
    if isinstance(found, CachedAnswer):
        return found
    with found:
        return None


async def test_an_answer_is_given_again_until_it_is_too_old(clock: Clock) -> None:
    cache = make(clock, ttl_s=60)
    assert await find(cache) is None
    assert await fill(cache) is True
    clock.now += 59.5
    answer = await find(cache)
    assert answer is not None
    assert answer.body == BODY
    assert cache.hit_headers(answer) == [(b"x-baton-cache", b"hit"), (b"age", b"59")]
    assert await find(cache, OTHER) is None
    clock.now += 0.5
    assert await find(cache) is None
    assert (cache.hits_total, cache.misses_total) == (1, 4)


async def test_only_whole_and_small_answers_are_kept(clock: Clock) -> None:
    cache = make(clock, max_entry_bytes=2000)
    assert await fill(cache, body=b'{"error":{"message":"broke"}}') is False
    assert await fill(cache, body=LONG) is False
    assert await find(cache) is None
    assert len(cache.memory) == 0


async def test_refresh_replaces_what_is_there(clock: Clock) -> None:
    cache = make(clock)
    await fill(cache)
    with cache.refresh(KEY, "chat") as lease:
        assert await lease.keep(LONG)
    answer = await find(cache)
    assert answer is not None
    assert answer.body == LONG


async def test_of_equal_requests_one_works_and_the_others_get_its_answer(clock: Clock) -> None:
    cache = make(clock)
    worked, go = 0, asyncio.Event()

    async def request() -> bytes:
        nonlocal worked
        found = await cache.begin(KEY, "chat")
        if isinstance(found, CachedAnswer):
            return found.body
        with found:
            worked += 1
            await go.wait()
            await found.keep(BODY)
        return BODY

    tasks = [asyncio.create_task(request()) for _ in range(20)]
    other = asyncio.create_task(find(cache, OTHER))
    assert await other is None  # a different request waits for nobody
    go.set()
    assert await asyncio.gather(*tasks) == [BODY] * 20
    assert worked == 1
    assert cache.hits_total == 19


@pytest.mark.parametrize("end", ["raises", "leaves", "is cancelled"])
async def test_when_the_first_breaks_the_next_one_works(clock: Clock, end: str) -> None:
    cache = make(clock)
    first = await cache.begin(KEY, "chat")
    assert isinstance(first, Lease)
    waiting = [asyncio.create_task(fill_or_find(cache)) for _ in range(5)]
    await asyncio.sleep(0)

    async def break_off() -> None:
        with first:
            if end == "raises":
                raise ValueError
            if end == "is cancelled":
                raise asyncio.CancelledError

    with pytest.raises(BaseException) if end != "leaves" else pytest.MonkeyPatch.context():  # noqa: PT011
        await break_off()
    assert sorted(await asyncio.gather(*waiting)) == ["hit"] * 4 + ["worked"]


async def fill_or_find(cache: ResponseCache) -> str:
    found = await cache.begin(KEY, "chat")
    if isinstance(found, CachedAnswer):
        return "hit"
    with found:
        await asyncio.sleep(0)
        await found.keep(BODY)
    return "worked"


async def test_nobody_waits_again_when_answers_cannot_be_kept(clock: Clock) -> None:
    cache = make(clock, max_entry_bytes=1024, wait_s=600)
    first = await cache.begin(KEY, "chat")
    assert isinstance(first, Lease)
    waiting = [asyncio.create_task(cache.begin(KEY, "chat")) for _ in range(5)]
    await asyncio.sleep(0)
    with first:
        await first.keep(LONG)
    # All five go on at once, without any of them having ended.
    async with asyncio.timeout(20):
        leases = await asyncio.gather(*waiting)
    assert all(isinstance(lease, Lease) for lease in leases)


async def test_waiting_has_an_end(clock: Clock) -> None:
    cache = make(clock, wait_s=0)
    first = await cache.begin(KEY, "chat")
    second = await cache.begin(KEY, "chat")
    assert isinstance(first, Lease)
    assert isinstance(second, Lease)
    with second:
        await second.keep(LONG)
    with first:
        await first.keep(BODY)
    answer = await find(cache)
    assert answer is not None
    assert answer.body == BODY


async def test_a_client_that_leaves_while_it_waits_disturbs_nobody(clock: Clock) -> None:
    cache = make(clock)
    first = await cache.begin(KEY, "chat")
    assert isinstance(first, Lease)
    leaving, staying = (asyncio.create_task(cache.begin(KEY, "chat")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    with first:
        await first.keep(BODY)
    assert isinstance(await staying, CachedAnswer)


async def test_gateways_share_answers_through_the_store(clock: Clock, logs: LogStore) -> None:
    one, two = make(clock, logs, ttl_s=60), make(clock, logs, ttl_s=60)
    await fill(one)
    clock.now += 30
    answer = await find(two)
    assert answer is not None
    assert (answer.body, answer.age_s(clock.now)) == (BODY, 30)
    # The copy in memory grows old with the original.
    clock.now += 30
    assert await find(two) is None


async def test_a_store_that_is_down_is_a_miss(clock: Clock) -> None:
    cache = make(clock, DownStore())
    assert await find(cache) is None
    assert await fill(cache) is True
    assert await find(cache) is not None
    bare = make(clock, DownStore(), memory_bytes=0)
    assert await fill(bare) is False
    assert await find(bare) is None


async def test_a_damaged_shared_answer_is_a_miss(clock: Clock, logs: LogStore) -> None:
    cache = make(clock, logs)
    for stored in (b"\x09", b"\x00\xc1", b"\x01zzz"):
        await logs.put(KEY, Segment(stored, 1, 1), ttl_s=60)
        assert await find(cache) is None
    await fill(cache)
    assert await find(make(clock, logs)) is not None


def answer(size: int, stored_at: float = 0.0) -> CachedAnswer:
    return CachedAnswer("chat", b"x" * size, stored_at)


def test_memory_forgets_what_was_not_used_for_longest() -> None:
    memory = AnswerMemory(3 * (ENTRY_BYTES + 10), 60)
    for name in (b"1", b"2", b"3"):
        assert memory.put(name, answer(10))
    assert memory.get(b"1", 0)
    memory.put(b"4", answer(10))
    assert [name for name in (b"1", b"2", b"3", b"4") if memory.get(name, 0)] == [b"1", b"3", b"4"]
    assert not memory.put(b"5", answer(4 * ENTRY_BYTES))
    memory.clear()
    assert (len(memory), memory.size) == (0, 0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 500), st.booleans(), st.integers(0, 30))))
def test_memory_never_exceeds_its_capacity_and_knows_its_size(steps: list[tuple[bytes, int, bool, int]]) -> None:
    memory, now, kept = AnswerMemory(1200, 60), 0, {}
    for name, size, is_put, seconds in steps:
        now += seconds
        if is_put and memory.put(name, answer(size, now)):
            kept[name] = (size, now)
        found = memory.get(name, now)
        if found is not None:
            assert (len(found.body), found.stored_at) == kept[name]
            assert now < found.stored_at + 60
        assert memory.size == sum(len(each.body) + ENTRY_BYTES for each in memory._answers.values()) <= 1200
