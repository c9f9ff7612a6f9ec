"""Logs in the embedded SQLite file: one transaction per write, bounded in bytes, the least recently used go first.

Expiry is in Unix time, because it must hold over restarts. Within one space all logs live equally long, so the order of expiry
is the order of use, and one index serves both. Writes reach the disk before they return, so a read moves the expiry only when
it gains at least a fiftieth of the time to live.
"""

import sqlite3
import time
from collections.abc import Callable

from gateway.context.bounds import check_bounds
from gateway.context.errors import Conflict
from gateway.context.logs import Bounds, Log, Segment
from gateway.store.sqlite import Database

LOG_OVERHEAD_BYTES = 256
"""What a log counts beside its segments, so that empty ones are bounded as well."""

_REFRESH_GAIN = 0.02
_MAX_PURGED = 32

_SCHEMA = (
    (
        "CREATE TABLE context_logs (space TEXT NOT NULL, key BLOB NOT NULL, version INTEGER NOT NULL, items INTEGER NOT NULL,"
        " size INTEGER NOT NULL, stored INTEGER NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL,"
        " PRIMARY KEY (space, key)) WITHOUT ROWID",
        "CREATE INDEX context_logs_by_expiry ON context_logs (space, expires_at)",
        "CREATE TABLE context_segments (space TEXT NOT NULL, key BLOB NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL,"
        " PRIMARY KEY (space, key, version),"
        " FOREIGN KEY (space, key) REFERENCES context_logs (space, key) ON DELETE CASCADE)",
        "CREATE TABLE context_totals (space TEXT NOT NULL PRIMARY KEY, stored INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TRIGGER context_logs_added AFTER INSERT ON context_logs BEGIN"
        " INSERT INTO context_totals VALUES (new.space, new.stored)"
        " ON CONFLICT (space) DO UPDATE SET stored = stored + excluded.stored; END",
        "CREATE TRIGGER context_logs_grown AFTER UPDATE OF stored ON context_logs BEGIN"
        " UPDATE context_totals SET stored = stored + new.stored - old.stored WHERE space = new.space; END",
        "CREATE TRIGGER context_logs_gone AFTER DELETE ON context_logs BEGIN"
        " UPDATE context_totals SET stored = stored - old.stored WHERE space = old.space; END",
    ),
)


class SqliteLogs:
    """The logs of one space of a database; a `LogStore`.

    Args:
        space: keeps kinds of logs apart (`conversations`); each has a bound of its own.
        max_bytes: what the space may hold. The log that was just written always stays.
        clock: Unix seconds.
    """

    def __init__(self, database: Database, space: str, *, max_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._space = space
        self._max_bytes = max_bytes
        self._clock = clock
        self._is_migrated = False

    async def read(self, key: bytes, *, refresh_s: float | None = None) -> Log | None:
        """See `LogStore`."""
        await self._prepare()
        now = self._clock()
        log = await self._database.read(lambda connection: self._find(connection, key, now))
        if log is None or refresh_s is None or now + refresh_s < log.expires_at + refresh_s * _REFRESH_GAIN:
            return log
        expires_at = now + refresh_s
        await self._database.run(lambda connection: self._touch(connection, key, expires_at))
        return log._replace(expires_at=expires_at)

    async def append(self, key: bytes, segment: Segment, *, expected: int | None, bounds: Bounds, ttl_s: float) -> int:
        """See `LogStore`."""
        await self._prepare()
        now = self._clock()

        def work(connection: sqlite3.Connection) -> int:
            self._purge(connection, now)
            version, items, size = self._state(connection, key, now)
            if expected is not None and expected != version:
                raise Conflict(expected, version)
            check_bounds(items + segment.items, size + segment.size, bounds, what="The conversation")
            self._write(connection, key, segment, version + 1, now, ttl_s)
            self._make_room(connection, key)
            return version + 1

        return await self._database.run(work)

    async def put(self, key: bytes, segment: Segment, *, ttl_s: float) -> None:
        """See `LogStore`."""
        await self._prepare()
        now = self._clock()

        def work(connection: sqlite3.Connection) -> None:
            self._purge(connection, now)
            self._remove(connection, key)
            self._write(connection, key, segment, 1, now, ttl_s)
            self._make_room(connection, key)

        await self._database.run(work)

    async def delete(self, key: bytes) -> bool:
        """See `LogStore`."""
        await self._prepare()
        now = self._clock()

        def work(connection: sqlite3.Connection) -> bool:
            was_there = self._state(connection, key, now)[0] > 0
            self._remove(connection, key)
            return was_there

        return await self._database.run(work)

    async def _prepare(self) -> None:
        if not self._is_migrated:
            await self._database.migrate("context", _SCHEMA)
            self._is_migrated = True

    def _find(self, connection: sqlite3.Connection, key: bytes, now: float) -> Log | None:
        query = "SELECT version, created_at, expires_at FROM context_logs WHERE space = ? AND key = ? AND expires_at > ?"
        row = connection.execute(query, (self._space, key, now)).fetchone()
        if row is None:
            return None
        query = "SELECT data FROM context_segments WHERE space = ? AND key = ? ORDER BY version"
        segments = tuple(data for (data,) in connection.execute(query, (self._space, key)))
        return Log(row[0], segments, row[1], row[2])

    def _touch(self, connection: sqlite3.Connection, key: bytes, expires_at: float) -> None:
        # Another process may have written in between; an expiry never moves back.
        query = "UPDATE context_logs SET expires_at = max(expires_at, ?) WHERE space = ? AND key = ?"
        connection.execute(query, (expires_at, self._space, key))

    def _state(self, connection: sqlite3.Connection, key: bytes, now: float) -> tuple[int, int, int]:
        """The version, items and bytes of a log; one that has expired is removed."""
        query = "SELECT version, items, size, expires_at FROM context_logs WHERE space = ? AND key = ?"
        row = connection.execute(query, (self._space, key)).fetchone()
        if row is None:
            return 0, 0, 0
        version, items, size, expires_at = row
        if expires_at > now:
            return version, items, size
        self._remove(connection, key)
        return 0, 0, 0

    def _write(
        self, connection: sqlite3.Connection, key: bytes, segment: Segment, version: int, now: float, ttl_s: float
    ) -> None:
        data, items, size = segment
        connection.execute(
            "INSERT INTO context_logs VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (space, key) DO UPDATE SET"
            " version = excluded.version, items = items + excluded.items, size = size + excluded.size,"
            " stored = stored + ?, expires_at = excluded.expires_at",
            (self._space, key, version, items, size, len(data) + LOG_OVERHEAD_BYTES, now, now + ttl_s, len(data)),
        )
        if data:
            query = "INSERT INTO context_segments (space, key, version, data) VALUES (?, ?, ?, ?)"
            connection.execute(query, (self._space, key, version, data))

    def _remove(self, connection: sqlite3.Connection, key: bytes) -> None:
        connection.execute("DELETE FROM context_logs WHERE space = ? AND key = ?", (self._space, key))

    def _purge(self, connection: sqlite3.Connection, now: float) -> None:
        """Remove some of what has expired: each write removes more than it adds, so none is left for long."""
        connection.execute(
            "DELETE FROM context_logs WHERE space = ? AND key IN (SELECT key FROM context_logs"
            " WHERE space = ? AND expires_at <= ? ORDER BY expires_at LIMIT ?)",
            (self._space, self._space, now, _MAX_PURGED),
        )

    def _make_room(self, connection: sqlite3.Connection, keep: bytes) -> None:
        total = connection.execute("SELECT stored FROM context_totals WHERE space = ?", (self._space,)).fetchone()[0]
        excess = total - self._max_bytes
        if excess <= 0:
            return
        oldest = connection.execute(
            "SELECT key, stored FROM context_logs WHERE space = ? AND key <> ? ORDER BY expires_at", (self._space, keep)
        )
        victims: list[bytes] = []
        while excess > 0 and (row := oldest.fetchone()) is not None:
            victims.append(row[0])
            excess -= row[1]
        oldest.close()
        for key in victims:
            self._remove(connection, key)
