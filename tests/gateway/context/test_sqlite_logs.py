"""What only the embedded store does: expiry by its own clock, a bound in bytes, survival of restarts."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from gateway.context.logs import Bounds, Segment
from gateway.context.sqlite_logs import LOG_OVERHEAD_BYTES, SqliteLogs
from gateway.store.sqlite import Database
from tests.gateway.context.clock import Clock

WIDE = Bounds(items=1000, size=1 << 20)
ROOMY = 1 << 40


def key(number: int) -> bytes:
    return number.to_bytes(32)


async def append(logs: SqliteLogs, number: int, data: bytes = b"a", *, ttl_s: float = 100) -> int:
    return await logs.append(key(number), Segment(data, 1, len(data)), expected=None, bounds=WIDE, ttl_s=ttl_s)


def counts(database: Database) -> tuple[int, int, int]:
    """Logs, segments and the running total, read behind the store's back."""
    connection = sqlite3.connect(database.path)
    tables = ("count(*) FROM context_logs", "count(*) FROM context_segments", "coalesce(sum(stored), 0) FROM context_totals")
    found = tuple(connection.execute(f"SELECT {table}").fetchone()[0] for table in tables)
    connection.close()
    return found


async def test_a_log_expires_when_it_was_not_used(database: Database, clock: Clock) -> None:
    logs = SqliteLogs(database, "s", max_bytes=ROOMY, clock=clock)
    await append(logs, 1)
    clock.now += 99.9
    assert await logs.read(key(1)) is not None
    clock.now += 0.1
    assert await logs.read(key(1)) is None
    assert await logs.delete(key(1)) is False
    assert await append(logs, 1, b"new") == 1
    log = await logs.read(key(1))
    assert log is not None
    assert (log.segments, log.created_at) == ((b"new",), clock.now)


async def test_reading_and_writing_begin_the_time_anew(database: Database, clock: Clock) -> None:
    logs = SqliteLogs(database, "s", max_bytes=ROOMY, clock=clock)
    await append(logs, 1)
    created_at = clock.now
    for _ in range(5):
        clock.now += 90
        log = await logs.read(key(1), refresh_s=100)
        assert log is not None
        assert (log.created_at, log.expires_at) == (created_at, clock.now + 100)
        clock.now += 90
        await append(logs, 1)
    clock.now += 100
    assert await logs.read(key(1), refresh_s=100) is None


async def test_a_read_that_gains_little_writes_nothing(database: Database, clock: Clock) -> None:
    logs = SqliteLogs(database, "s", max_bytes=ROOMY, clock=clock)
    await append(logs, 1)
    expires_at = clock.now + 100
    clock.now += 1.9
    log = await logs.read(key(1), refresh_s=100)
    assert log is not None
    assert log.expires_at == expires_at
    clock.now += 0.2
    log = await logs.read(key(1), refresh_s=100)
    assert log is not None
    assert log.expires_at == clock.now + 100


async def test_a_full_space_forgets_what_was_not_used_for_longest(database: Database, clock: Clock) -> None:
    room = 3 * (LOG_OVERHEAD_BYTES + 100)
    logs = SqliteLogs(database, "s", max_bytes=room, clock=clock)
    for number in (1, 2, 3):
        await append(logs, number, b"x" * 100)
        clock.now += 10
    await logs.read(key(1), refresh_s=100)
    clock.now += 1
    await append(logs, 4, b"x" * 100)
    there = [number for number in (1, 2, 3, 4) if await logs.read(key(number)) is not None]
    assert there == [1, 3, 4]
    assert counts(database) == (3, 3, room)


async def test_what_was_just_written_stays_even_when_it_alone_is_too_much(database: Database, clock: Clock) -> None:
    logs = SqliteLogs(database, "s", max_bytes=1000, clock=clock)
    await append(logs, 1)
    await append(logs, 2, b"x" * 5000)
    assert await logs.read(key(1)) is None
    assert await logs.read(key(2)) is not None


async def test_a_full_space_takes_nothing_from_another(database: Database, clock: Clock) -> None:
    small = SqliteLogs(database, "small", max_bytes=1000, clock=clock)
    other = SqliteLogs(database, "other", max_bytes=ROOMY, clock=clock)
    await append(other, 1, b"x" * 5000)
    for number in range(10):
        await append(small, number, b"x" * 500)
    assert await other.read(key(1)) is not None


async def test_expired_logs_leave_the_file_with_later_writes(database: Database, clock: Clock) -> None:
    logs = SqliteLogs(database, "s", max_bytes=ROOMY, clock=clock)
    for number in range(50):
        await append(logs, number)
    clock.now += 100
    for number in range(100, 102):
        await append(logs, number)
    assert counts(database) == (2, 2, 2 * (LOG_OVERHEAD_BYTES + 1))


async def test_nothing_is_left_of_what_was_deleted(database: Database, clock: Clock) -> None:
    logs = SqliteLogs(database, "s", max_bytes=ROOMY, clock=clock)
    await append(logs, 1, b"x" * 100)
    await append(logs, 1, b"x" * 100)
    assert counts(database) == (1, 2, LOG_OVERHEAD_BYTES + 200)
    await logs.put(key(1), Segment(b"y", 1, 1), ttl_s=100)
    assert counts(database) == (1, 1, LOG_OVERHEAD_BYTES + 1)
    await logs.delete(key(1))
    assert counts(database) == (0, 0, 0)


async def test_logs_survive_a_restart(tmp_path: Path, clock: Clock) -> None:
    path = str(tmp_path / "baton.db")
    for version in (1, 2):
        database = Database(path)
        logs = SqliteLogs(database, "s", max_bytes=ROOMY, clock=clock)
        assert await append(logs, 1) == version
        await database.close()


async def test_a_failed_write_leaves_nothing_behind(database: Database, clock: Clock) -> None:
    logs = SqliteLogs(database, "s", max_bytes=ROOMY, clock=clock)
    await append(logs, 2)
    before = counts(database)
    with pytest.raises(UnicodeEncodeError):
        await logs.append(key(1), Segment("\ud800", 1, 1), expected=None, bounds=WIDE, ttl_s=1)  # type: ignore[arg-type]
    assert counts(database) == before


async def test_two_processes_that_share_a_file_lose_nothing(tmp_path: Path) -> None:
    databases = [Database(str(tmp_path / "baton.db")) for _ in range(2)]
    both = [SqliteLogs(database, "s", max_bytes=ROOMY) for database in databases]
    written = [b"%d" % number for number in range(40)]
    await asyncio.gather(*(append(both[number % 2], 1, data) for number, data in enumerate(written)))
    log = await both[0].read(key(1))
    assert log is not None
    assert sorted(log.segments) == sorted(written)
    assert log.version == 40
    for database in databases:
        await database.close()
