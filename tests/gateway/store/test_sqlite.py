"""The one SQLite file: order, transactions, other processes, and every way in which a file can be unusable."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.store.config import StoreConfig, database_path
from gateway.store.errors import StoreDown
from gateway.store.sqlite import Database

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = (("CREATE TABLE t (n INTEGER)",),)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(str(tmp_path / "new" / "baton.db"))
    yield database
    await database.close()


def insert(n: int):
    return lambda connection: connection.execute("INSERT INTO t VALUES (?)", (n,))


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [n for (n,) in connection.execute("SELECT n FROM t ORDER BY rowid")]


@contextmanager
def other_process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code in another process; its first line on stdout means it is where the test wants it."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


LOCK = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    print("ready", flush=True)
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()
"""


async def test_nothing_is_created_before_the_first_call(database):
    assert not database.exists()
    await database.migrate("t", SCHEMA)
    assert database.exists()


async def test_file_and_its_folder_are_for_the_owner_only(database):
    await database.migrate("t", SCHEMA)
    await database.run(insert(1))
    modes = [
        stat.S_IMODE(os.stat(path).st_mode) for path in (database.path, f"{database.path}-wal", os.path.dirname(database.path))
    ]
    assert modes == [0o600, 0o600, 0o700]


async def test_calls_run_in_the_order_they_were_made(database):
    await database.migrate("t", SCHEMA)
    await asyncio.gather(*(database.run(insert(n)) for n in range(200)))
    assert await database.read(numbers) == list(range(200))


async def test_all_calls_run_in_one_thread_that_is_not_the_loop(database):
    threads = {await database.run(lambda _: threading.get_ident()) for _ in range(3)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_what_fails_leaves_nothing_behind_and_raises_its_own_error(database):
    await database.migrate("t", SCHEMA)

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (1)")
        raise LookupError("half way")

    with pytest.raises(LookupError, match="half way"):
        await database.run(half)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await database.run(lambda connection: connection.execute("SELECT * FROM nowhere"))
    assert await database.read(numbers) == []


async def test_memory_database_lives_as_long_as_it_is_open():
    database = Database(":memory:")
    await database.migrate("t", SCHEMA)
    await database.run(insert(7))
    assert await database.read(numbers) == [7]
    await database.close()


async def test_steps_of_a_schema_are_made_once_each(database, tmp_path):
    steps = (("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"), ("INSERT INTO t VALUES (2)",))
    await database.migrate("t", steps[:1])
    await database.migrate("other", (("CREATE TABLE u (n INTEGER)",),))
    await database.migrate("t", steps)
    await database.migrate("t", steps)
    assert await database.read(numbers) == [1, 2]


async def test_broken_step_changes_nothing(database):
    with pytest.raises(sqlite3.OperationalError):
        await database.migrate("t", (("CREATE TABLE t (n INTEGER)", "nonsense"),))
    await database.migrate("t", SCHEMA)
    assert await database.read(numbers) == []


async def test_file_of_a_later_version_is_left_alone(database):
    await database.migrate("t", (*SCHEMA, ("INSERT INTO t VALUES (1)",)))
    with pytest.raises(StoreDown, match="version 2; this version of Baton knows 1"):
        await database.migrate("t", SCHEMA)


async def test_file_locked_for_too_long_is_down_and_comes_back(tmp_path):
    database = Database(str(tmp_path / "baton.db"), lock_timeout_s=0.05)
    await database.migrate("t", SCHEMA)
    with other_process(LOCK, database.path) as process:
        with pytest.raises(StoreDown, match="locked"):
            await database.run(insert(1))
        # A writer elsewhere does not keep anybody from reading.
        assert await database.read(numbers) == []
        process.communicate("go\n")
    await database.run(insert(2))
    assert await database.read(numbers) == [2]
    await database.close()


async def test_call_waits_for_a_lock_that_goes_away(tmp_path):
    database = Database(str(tmp_path / "baton.db"), lock_timeout_s=30)
    await database.migrate("t", SCHEMA)
    with other_process(LOCK, database.path) as process:
        waiting = asyncio.create_task(database.run(insert(1)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        process.communicate("go\n")
        await waiting
    assert await database.read(numbers) == [1]
    await database.close()


async def test_two_processes_lose_no_write(tmp_path):
    database = Database(str(tmp_path / "baton.db"), lock_timeout_s=30)
    await database.migrate("t", SCHEMA)
    code = """
        import asyncio, sys
        from gateway.store.sqlite import Database

        async def main():
            database = Database(sys.argv[1], lock_timeout_s=30)
            await database.migrate("t", (("CREATE TABLE t (n INTEGER)",),))
            print("ready", flush=True)
            for n in range(100):
                await database.run(lambda connection: connection.execute("INSERT INTO t VALUES (-1)"))
            await database.close()

        asyncio.run(main())
    """
    with other_process(code, database.path) as process:
        for _ in range(100):
            await database.run(insert(1))
        process.communicate()
    assert process.returncode == 0
    written = await database.read(numbers)
    assert (written.count(1), written.count(-1)) == (100, 100)
    await database.close()


@pytest.mark.parametrize("content", ["folder", "text", "below a file"])
async def test_unusable_path_is_down(tmp_path, content):
    path = tmp_path / "baton.db"
    if content == "folder":
        path.mkdir()
    else:
        path.write_text("this is no database, but long enough to look like one " * 20)
    database = Database(str(path / "deeper" if content == "below a file" else path))
    with pytest.raises(StoreDown, match=r"baton\.db"):
        await database.run(lambda connection: connection.execute("SELECT 1"))
    await database.close()


async def test_full_disk_is_down_and_leaves_what_was_there(database):
    await database.migrate("t", SCHEMA)
    await database.run(insert(1))
    pages = (await database.read(lambda connection: connection.execute("PRAGMA page_count").fetchone()))[0]

    def fill(connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")
        connection.executemany("INSERT INTO t VALUES (?)", ((n,) for n in range(100_000)))

    with pytest.raises(StoreDown, match="full"):
        await database.run(fill)
    assert await database.read(numbers) == [1]


async def test_folder_that_not_even_root_may_write_is_down():
    database = Database("/proc/baton/baton.db")
    with pytest.raises(StoreDown, match=r"^/proc/baton/baton\.db: "):
        await database.run(insert(1))
    await database.close()


async def test_read_only_file_can_be_read_and_not_written(tmp_path):
    database = Database(str(tmp_path / "baton.db"))
    await database.migrate("t", SCHEMA)
    await database.run(lambda connection: connection.execute("PRAGMA query_only = ON"))
    with pytest.raises(StoreDown, match="readonly"):
        await database.run(insert(1))
    # The connection is made anew after such an error.
    await database.run(insert(2))
    assert await database.read(numbers) == [2]
    await database.close()


async def test_close_finishes_what_was_asked_for_and_refuses_the_rest(tmp_path):
    database = Database(str(tmp_path / "baton.db"))
    await database.migrate("t", SCHEMA)
    writing = [asyncio.create_task(database.run(insert(n))) for n in range(50)]
    await asyncio.sleep(0)
    await database.close()
    await asyncio.gather(*writing)
    with pytest.raises(StoreDown, match="is closed"):
        await database.run(insert(99))
    await database.close()
    again = Database(database.path)
    assert await again.read(numbers) == list(range(50))
    await again.close()


async def test_close_of_a_locked_file_ends(tmp_path):
    database = Database(str(tmp_path / "baton.db"), lock_timeout_s=1000, close_timeout_s=0)
    await database.migrate("t", SCHEMA)
    with other_process(LOCK, database.path) as process:
        writing = [asyncio.create_task(database.run(insert(n))) for n in range(3)]
        await asyncio.sleep(0)
        await asyncio.wait_for(database.close(), 20)
        results = await asyncio.gather(*writing, return_exceptions=True)
        process.communicate("go\n")
    assert [type(result) for result in results] == [StoreDown] * 3


async def test_close_of_what_was_never_used_does_nothing(tmp_path):
    await Database(str(tmp_path / "baton.db")).close()
    assert list(tmp_path.iterdir()) == []


async def test_cancelled_call_is_not_made_but_one_that_runs_is_finished(database):
    await database.migrate("t", SCHEMA)
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait(10)
        connection.execute("INSERT INTO t VALUES (1)")

    running = asyncio.create_task(database.run(slow))
    waiting = asyncio.create_task(database.run(insert(2)))
    last = asyncio.create_task(database.run(insert(3)))
    await asyncio.to_thread(begun.wait, 10)
    running.cancel()
    waiting.cancel()
    await asyncio.wait((running, waiting))
    go_on.set()
    await last
    assert running.cancelled()
    assert waiting.cancelled()
    assert await database.read(numbers) == [1, 3]


async def test_too_many_waiting_calls_are_refused(tmp_path):
    database = Database(str(tmp_path / "baton.db"), max_waiting=2)
    begun, go_on = threading.Event(), threading.Event()
    running = asyncio.create_task(database.run(lambda _: (begun.set(), go_on.wait(10))))
    await asyncio.to_thread(begun.wait, 10)
    waiting = [asyncio.create_task(database.run(lambda _: "done")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(StoreDown, match="2 calls wait already"):
        await database.run(lambda _: None)
    closing = asyncio.create_task(database.close())
    go_on.set()
    assert await asyncio.gather(*waiting) == ["done", "done"]
    await asyncio.gather(running, closing)


@pytest.mark.parametrize(
    ("path", "environ", "expected"),
    [
        ("/srv/baton.db", {"XDG_DATA_HOME": "/data"}, "/srv/baton.db"),
        (":memory:", {}, ":memory:"),
        ("", {"XDG_DATA_HOME": "/data"}, "/data/baton/baton.db"),
        ("", {"XDG_DATA_HOME": "relative"}, str(Path.home() / ".local/share/baton/baton.db")),
        ("", {}, str(Path.home() / ".local/share/baton/baton.db")),
    ],
)
def test_file_is_where_the_configuration_or_the_desktop_standard_says(path, environ, expected):
    assert database_path(StoreConfig(path=path), environ) == expected


async def test_a_file_that_was_deleted_is_made_again_with_its_tables(tmp_path: Path) -> None:
    """Whoever opens the path afterwards must find what is written from now on."""
    path = tmp_path / "baton.db"
    database = Database(str(path))
    await database.migrate("m", (("CREATE TABLE kept (a)",),))
    shutil.rmtree(tmp_path)
    await database.run(lambda connection: connection.execute("INSERT INTO kept VALUES (7)"))
    await database.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT a FROM kept").fetchall() == [(7,)]
