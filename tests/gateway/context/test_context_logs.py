"""What every store of logs must do; runs over SQLite and over a real Redis-compatible server."""

import asyncio
import time
from collections.abc import Callable

import pytest

from gateway.context.errors import Conflict, TooLarge
from gateway.context.logs import Bounds, LogStore, Segment

WIDE = Bounds(items=1000, size=1 << 20)
KEY, OTHER = b"k" * 32, b"o" * 32


def segment(data: bytes, items: int = 1) -> Segment:
    return Segment(data, items, len(data))


async def append(logs: LogStore, data: bytes, *, expected: int | None = None, bounds: Bounds = WIDE) -> int:
    return await logs.append(KEY, segment(data), expected=expected, bounds=bounds, ttl_s=60)


async def test_what_was_never_written_is_not_there(logs: LogStore) -> None:
    assert await logs.read(KEY) is None
    assert await logs.delete(KEY) is False


async def test_segments_come_back_byte_for_byte_in_order(logs: LogStore) -> None:
    written = [b"\x00\xff\r\n", b"{}", "漢🧑‍🚀".encode(), *(b"%d" % number for number in range(20))]
    versions = [await append(logs, data) for data in written]
    log = await logs.read(KEY)
    assert log is not None
    assert log.segments == tuple(written)
    assert versions == list(range(1, len(written) + 1))
    assert log.version == len(written)


async def test_order_holds_for_many_long_segments(logs: LogStore) -> None:
    # Redis keeps large hashes in no order.
    written = [b"%d" % number * 100 for number in range(40)]
    for data in written:
        await append(logs, data)
    log = await logs.read(KEY)
    assert log is not None
    assert log.segments == tuple(written)


async def test_times_are_unix_seconds(logs: LogStore) -> None:
    await append(logs, b"a")
    log = await logs.read(KEY)
    assert log is not None
    assert log.created_at == pytest.approx(time.time(), abs=60)
    assert log.expires_at == pytest.approx(log.created_at + 60, abs=30)


async def test_keys_and_spaces_are_apart(open_logs: Callable[[str], LogStore]) -> None:
    conversations, responses = open_logs("conversations"), open_logs("responses")
    await append(conversations, b"a")
    assert await conversations.read(OTHER) is None
    assert await responses.read(KEY) is None
    assert await responses.delete(KEY) is False
    await append(responses, b"b")
    assert await conversations.delete(KEY) is True
    log = await responses.read(KEY)
    assert log is not None
    assert log.segments == (b"b",)


async def test_an_unexpected_version_writes_nothing(logs: LogStore) -> None:
    assert await append(logs, b"a", expected=0) == 1
    with pytest.raises(Conflict, match="version 0 was expected, it has version 1") as caught:
        await append(logs, b"b", expected=0)
    assert (caught.value.expected, caught.value.current) == (0, 1)
    assert await append(logs, b"c", expected=1) == 2
    log = await logs.read(KEY)
    assert log is not None
    assert log.segments == (b"a", b"c")


async def test_a_version_of_what_does_not_exist_is_a_conflict(logs: LogStore) -> None:
    with pytest.raises(Conflict) as caught:
        await append(logs, b"a", expected=3)
    assert caught.value.current == 0
    assert await logs.read(KEY) is None


async def test_bounds_count_all_segments_and_refuse_whole_writes(logs: LogStore) -> None:
    bounds = Bounds(items=3, size=10)
    await append(logs, b"12345", bounds=bounds)
    with pytest.raises(TooLarge, match="11 bytes, the limit is 10"):
        await append(logs, b"123456", bounds=bounds)
    with pytest.raises(TooLarge, match="4 items, the limit is 3"):
        await logs.append(KEY, segment(b"1", items=3), expected=None, bounds=bounds, ttl_s=60)
    assert await append(logs, b"12345", bounds=bounds) == 2


async def test_an_empty_write_makes_a_log_and_raises_its_version(logs: LogStore) -> None:
    empty = Segment(b"", 0, 0)
    assert await logs.append(KEY, empty, expected=0, bounds=WIDE, ttl_s=60) == 1
    assert await append(logs, b"a") == 2
    assert await logs.append(KEY, empty, expected=2, bounds=WIDE, ttl_s=60) == 3
    log = await logs.read(KEY)
    assert log is not None
    assert (log.version, log.segments) == (3, (b"a",))


async def test_put_replaces_everything(logs: LogStore) -> None:
    await append(logs, b"a")
    await append(logs, b"b")
    await logs.put(KEY, segment(b"c"), ttl_s=60)
    log = await logs.read(KEY)
    assert log is not None
    assert (log.version, log.segments) == (1, (b"c",))
    # The bounds count what is there now.
    assert await append(logs, b"12345", bounds=Bounds(items=2, size=6)) == 2


async def test_delete_says_what_it_did(logs: LogStore) -> None:
    await append(logs, b"a")
    assert await logs.delete(KEY) is True
    assert await logs.delete(KEY) is False
    assert await logs.read(KEY) is None
    assert await append(logs, b"b", expected=0) == 1


async def test_concurrent_appends_lose_nothing(logs: LogStore) -> None:
    written = [b"%d" % number for number in range(100)]
    versions = await asyncio.gather(*(append(logs, data) for data in written))
    log = await logs.read(KEY)
    assert log is not None
    assert sorted(versions) == list(range(1, 101))
    assert sorted(log.segments) == sorted(written)
    # Each version names the place of its segment.
    assert [log.segments[version - 1] for version in versions] == written


async def test_of_concurrent_appends_to_one_version_one_wins(logs: LogStore) -> None:
    await append(logs, b"a")
    results = await asyncio.gather(*(append(logs, b"b", expected=1) for _ in range(20)), return_exceptions=True)
    assert [result for result in results if not isinstance(result, Conflict)] == [2]
    log = await logs.read(KEY)
    assert log is not None
    assert log.segments == (b"a", b"b")
