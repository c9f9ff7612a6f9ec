"""What keys have spent outlives the process, is exact between processes, and survives a file that cannot be written."""

import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest

from gateway.limits import spend as spend_module
from gateway.limits.spend import SqliteSpend
from gateway.store.sqlite import Database
from tests.gateway.limits.conftest import until


async def test_sums_survive_a_restart(tmp_path: Path) -> None:
    for expected in (0.0, 1.5, 3.0):
        database = Database(str(tmp_path / "baton.db"))
        spend = SqliteSpend(database)
        assert spend.known("key", "2026-11") is None
        await spend.load("key", "2026-11")
        assert spend.known("key", "2026-11") == expected
        spend.add("key", "2026-11", 1.0)
        spend.add("key", "2026-11", 0.5)
        assert spend.known("key", "2026-11") == expected + 1.5
        await spend.close()
        await spend.close()
        await database.close()


async def test_additions_are_written_without_a_close(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "baton.db"))
    spend = SqliteSpend(database, flush_interval_s=0.01)
    spend.add("key", "total", 2.0)
    await until(lambda: bool(spend._sums))
    assert await database.run(_stored) == [("key", "total", 2.0)]
    await spend.close()
    await database.close()


def _stored(connection: sqlite3.Connection) -> list[tuple[str, str, float]]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'spend'").fetchall():
        return []
    return connection.execute("SELECT * FROM spend ORDER BY key_id, period").fetchall()


async def test_processes_that_share_the_file_learn_of_each_other(tmp_path: Path) -> None:
    databases = [Database(str(tmp_path / "baton.db")) for _ in range(2)]
    ours, theirs = (SqliteSpend(database) for database in databases)
    await asyncio.gather(ours.load("key", "total"), theirs.load("key", "total"))
    ours.add("key", "total", 1.0)
    await ours.close()
    theirs.add("key", "total", 0.25)
    await theirs.close()
    assert theirs.known("key", "total") == 1.25
    for database in databases:
        await database.close()


async def test_what_is_added_while_a_write_runs_is_counted_at_once_and_once() -> None:
    database = Database(":memory:")
    spend = SqliteSpend(database)
    spend.add("key", "total", 1.0)
    loading = asyncio.create_task(spend.load("key", "total"))
    for _ in range(4):
        await asyncio.sleep(0)  # the write is on its way
    spend.add("key", "total", 0.5)
    await loading
    assert spend.known("key", "total") == 1.5
    await spend.close()
    assert spend.known("key", "total") == 1.5
    assert await database.run(_stored) == [("key", "total", 1.5)]
    await database.close()


async def test_many_additions_and_loads_at_once_add_up() -> None:
    database = Database(":memory:")
    spend = SqliteSpend(database, flush_interval_s=0.001)
    for i in range(200):
        spend.add("key", "total", 1.0)
        if i % 10 == 0:
            await asyncio.gather(spend.load("key", "total"), spend.load(f"other {i}", "total"))
    await spend.close()
    assert spend.known("key", "total") == 200.0
    assert [row for row in await database.run(_stored) if row[0] == "key"] == [("key", "total", 200.0)]
    await database.close()


async def test_a_cancelled_load_loses_nothing() -> None:
    database = Database(":memory:")
    spend = SqliteSpend(database)
    spend.add("key", "total", 1.0)
    loading = asyncio.create_task(spend.load("key", "total"))
    await asyncio.sleep(0)
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    await spend.close()
    assert await database.run(_stored) == [("key", "total", 1.0)]
    await database.close()


async def test_a_file_that_cannot_be_written_costs_nothing_but_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "is a file"
    folder.write_text("")
    database = Database(str(folder / "baton.db"))
    spend = SqliteSpend(database, flush_interval_s=0.001)
    with caplog.at_level(logging.ERROR):
        await spend.load("key", "total")
        spend.add("key", "total", 1.0)
        await spend.load("key", "total")
        await spend._start()
        await spend._start()
    assert spend.known("key", "total") == 1.0
    assert spend.failures_total == 3
    assert len(caplog.records) == 1
    folder.unlink()
    spend.add("key", "total", 1.0)
    await spend.close()
    assert await database.run(_stored) == [("key", "total", 2.0)]
    assert spend.known("key", "total") == 2.0
    await database.close()


async def test_old_days_are_forgotten_and_everything_else_is_kept() -> None:
    database = Database(":memory:")
    spend = SqliteSpend(database)
    for period in ("2020-01-01", "2020-01", "total"):
        spend.add("key", period, 1.0)
    await spend.close()
    spend.add("new", "total", 1.0)
    await spend.close()
    assert [row[:2] for row in await database.run(_stored)] == [("key", "2020-01"), ("key", "total"), ("new", "total")]
    await database.close()


async def test_only_so_many_sums_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spend_module, "MAX_KNOWN", 3)
    database = Database(":memory:")
    spend = SqliteSpend(database)
    for number in range(9):
        spend.add(str(number), "total", 1.0)
        await spend.load(str(number), "total")
    assert spend.known("0", "total") is None
    assert spend.known("8", "total") == 1.0
    await spend.load("0", "total")
    assert spend.known("0", "total") == 1.0
    await spend.close()
    await database.close()
