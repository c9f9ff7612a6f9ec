"""One SQLite file that a thread of its own reads and writes, so that no disk ever holds up the event loop.

Calls run in the order they were made, each as one transaction: nothing is ever half written, whoever dies. Several processes
may use the file at once (write-ahead log), so a command can change what a running gateway reads. A file that another process
keeps locked, a full disk and a broken file all become `StoreDown`, and the next call tries again from the start. The file must
lie on a local disk: SQLite's write-ahead log needs shared memory.

Source: the SQLite documentation, "Write-Ahead Logging" and "Result and Error Codes".
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Queue
from time import monotonic, sleep
from typing import Any, TypeVar

from gateway.store.config import MEMORY
from gateway.store.errors import StoreDown

T = TypeVar("T")

_BUSY_TIMEOUT_S = 0.25
# Some locks are reported at once, without SQLite's own patience.
_RETRY_S = 0.005
_DOWN = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_versions (module TEXT PRIMARY KEY, version INTEGER NOT NULL)"


class _Call:
    """What the thread is to do, and where the result goes."""

    __slots__ = ("begin", "future", "work")

    def __init__(self, begin: str, work: Callable[[sqlite3.Connection], Any]) -> None:
        self.begin = begin
        self.work = work
        self.future: Future[Any] = Future()


class Database:
    """One file, or `:memory:`. Nothing is opened or created before the first call.

    Args:
        path: the file; it is created with mode 0600, and missing folders with 0700.
        lock_timeout_s: how long one call waits for another process's lock.
        close_timeout_s: how long `close` lets the calls before it wait for locks, all of them together.
        max_waiting: calls that may wait for their turn.
    """

    def __init__(
        self,
        path: str,
        *,
        lock_timeout_s: float = 5.0,
        close_timeout_s: float = 5.0,
        max_waiting: int = 4096,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.path = path
        self._lock_timeout_s = lock_timeout_s
        self._close_timeout_s = close_timeout_s
        self._clock = clock
        # One place more than is ever used by calls, for the end.
        self._queue: Queue[_Call | None] = Queue(max_waiting + 1)
        self._max_waiting = max_waiting
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._migrated: dict[str, tuple[tuple[str, ...], ...]] = {}
        self._last_moment: float | None = None

    def exists(self) -> bool:
        """Whether there is anything to read yet: reading what was never written need not create a file."""
        return self.path == MEMORY or os.path.exists(self.path)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call `work` in the thread, inside a transaction that may write, and return its result once that is on the disk.

        `work` neither commits nor rolls back, and changes nothing but the database: it is called again when its transaction
        found the file locked. What it raises rolls everything back and is raised here. A call that is cancelled before its turn
        is not made; one whose turn has come is finished, and nobody learns its result.

        Raises:
            StoreDown: locked for too long, unreadable, unwritable, full, closed, or too many calls wait.
        """
        return await self._submit("BEGIN IMMEDIATE", work)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `run`, for work that only reads: it never waits for another process that writes."""
        return await self._submit("BEGIN", work)

    async def migrate(self, module: str, steps: tuple[tuple[str, ...], ...]) -> None:
        """Bring the tables of one module up to date: the statements of every step that this file has not seen yet.

        Each module counts its own steps, so modules come and go by themselves. A step that was released never changes.

        Raises:
            StoreDown: as `run`; or the file was written by a later version, with more steps than are known here.
        """
        await self.run(lambda connection: _migrate(connection, module, steps))
        self._migrated[module] = steps

    async def close(self) -> None:
        """Finish the calls made so far, close the file and end the thread. May be called twice; later calls are refused."""
        if self._last_moment is None:
            self._last_moment = self._clock() + self._close_timeout_s
            if self._thread is not None:
                self._queue.put_nowait(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def _submit(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._last_moment is not None:
            raise StoreDown(f"{self.path} is closed")
        if self._queue.qsize() >= self._max_waiting:
            raise StoreDown(f"{self.path}: {self._max_waiting} calls wait already")
        if self._thread is None:
            # A daemon: a gateway that dies without closing must not hang on its way out. The file stays whole either way.
            self._thread = threading.Thread(target=self._serve, name="sqlite", daemon=True)
            self._thread.start()
        call = _Call(begin, work)
        self._queue.put_nowait(call)
        result: T = await asyncio.wrap_future(call.future)
        return result

    def _serve(self) -> None:
        while (call := self._queue.get()) is not None:
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                call.future.set_result(self._patiently(call))
            except BaseException as error:
                call.future.set_exception(error)
            # Otherwise the last result would live until the next call.
            del call
        self._disconnect()

    def _patiently(self, call: _Call) -> Any:
        """Make a call; while the file is locked, again and again until the time is over."""
        give_up = self._clock() + self._lock_timeout_s
        while True:
            try:
                return self._transact(call)
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code in _DOWN:
                    self._disconnect()
                elif code not in _LOCKED:
                    raise
                elif self._clock() < min(give_up, self._last_moment or give_up):
                    sleep(_RETRY_S)
                    continue
                raise StoreDown(f"{self.path}: {error}") from error

    def _transact(self, call: _Call) -> Any:
        if self._connection is not None and self._was_replaced():
            self._disconnect()
        connection = self._connect()
        connection.execute(call.begin)
        try:
            result = call.work(connection)
            connection.execute("COMMIT")
        except BaseException:
            # Some errors have rolled back already.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return result

    def _migrate_again(self, connection: sqlite3.Connection) -> None:
        """Whoever has migrated once trusts that the tables are there, also in a file that is a new one."""
        if self._migrated:
            connection.execute("BEGIN IMMEDIATE")
            for module, steps in tuple(self._migrated.items()):
                _migrate(connection, module, steps)
            connection.execute("COMMIT")

    def _was_replaced(self) -> bool:
        """Whether the file was deleted or exchanged: SQLite would go on writing to what nobody can find any more."""
        if self.path == MEMORY:
            return False
        with suppress(OSError):
            return os.stat(self.path).st_ino != self._inode
        return True

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = _open(self.path)
                self._inode = 0 if self.path == MEMORY else os.stat(self.path).st_ino
                self._migrate_again(self._connection)
            except OSError as error:
                raise StoreDown(f"{self.path}: {error.strerror or error}") from error
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _open(path: str) -> sqlite3.Connection:
    if path != MEMORY:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its side files the mode of the file itself.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    # Without an isolation level Python begins no transactions of its own.
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # What was reported as done survives a power cut: a revoked key stays revoked.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, module: str, steps: tuple[tuple[str, ...], ...]) -> None:
    connection.execute(_VERSIONS)
    row = connection.execute("SELECT version FROM schema_versions WHERE module = ?", (module,)).fetchone()
    version: int = row[0] if row else 0
    if version > len(steps):
        raise StoreDown(f"the tables of {module} have version {version}; this version of Baton knows {len(steps)}")
    for step in steps[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute("INSERT OR REPLACE INTO schema_versions VALUES (?, ?)", (module, len(steps)))
