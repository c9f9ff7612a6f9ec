"""Keys in the gateway's SQLite file.

The version is a row of its own, not SQLite's `data_version`, which changes with every write of any table.
"""

import sqlite3
from collections.abc import Callable, Collection
from typing import TypeVar

from gateway.keys.record import KeyRecord, decode_record, decode_records, encode_record
from gateway.keys.store import MAX_KEYS, TooManyKeys
from gateway.store.sqlite import Database

T = TypeVar("T")

_STEPS = (
    (
        "CREATE TABLE keys (id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, record BLOB NOT NULL, "
        "revoked_at INTEGER, last_used_at INTEGER)",
        "CREATE TABLE keys_version (version INTEGER NOT NULL)",
        "INSERT INTO keys_version VALUES (0)",
    ),
)
_SELECT = "SELECT record, revoked_at, last_used_at FROM keys"
_TOUCH = "UPDATE keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?"
_CHANGED = "UPDATE keys_version SET version = version + 1"


class SqliteKeyStore:
    """A `KeyStore`. The file is created by the first key, not by looking for one."""

    def __init__(self, database: Database, *, max_keys: int = MAX_KEYS) -> None:
        self._database = database
        self._max_keys = max_keys
        self._is_migrated = False

    async def add(self, record: KeyRecord) -> None:
        """Store a new record. Raises `TooManyKeys`."""
        await self._migrate()
        await self._database.run(lambda connection: _add(connection, record, self._max_keys))

    async def get(self, key_id: str) -> KeyRecord | None:
        """Return one record, revoked or not."""
        return await self._read(lambda connection: _get(connection, key_id), None)

    async def all(self) -> list[KeyRecord]:
        """Return all records, oldest first."""
        return await self._read(_all, [])

    async def revoke(self, key_id: str, at: int) -> KeyRecord | None:
        """Revoke a key, and return it."""
        if not self._is_migrated and not self._database.exists():
            return None
        await self._migrate()
        return await self._database.run(lambda connection: _revoke(connection, key_id, at))

    async def touch(self, key_ids: Collection[str], at: int) -> None:
        """Note that keys were used."""
        await self._migrate()
        rows = [(at, key_id) for key_id in key_ids]
        await self._database.run(lambda connection: connection.executemany(_TOUCH, rows))

    async def version(self) -> int:
        """Return the number of changes so far."""
        return await self._read(_version, 0)

    async def _read(self, work: Callable[[sqlite3.Connection], T], empty: T) -> T:
        if not self._is_migrated and not self._database.exists():
            return empty
        await self._migrate()
        return await self._database.read(work)

    async def _migrate(self) -> None:
        if not self._is_migrated:
            await self._database.migrate("keys", _STEPS)
            self._is_migrated = True


def _add(connection: sqlite3.Connection, record: KeyRecord, max_keys: int) -> None:
    (stored,) = connection.execute("SELECT count(*) FROM keys").fetchone()
    if stored >= max_keys:
        oldest = "SELECT id FROM keys WHERE revoked_at IS NOT NULL ORDER BY revoked_at, id LIMIT 1"
        if not connection.execute(f"DELETE FROM keys WHERE id = ({oldest})").rowcount:
            raise TooManyKeys(max_keys)
    row = (record.id, record.created_at, encode_record(record))
    connection.execute("INSERT INTO keys (id, created_at, record) VALUES (?, ?, ?)", row)
    connection.execute(_CHANGED)


def _get(connection: sqlite3.Connection, key_id: str) -> KeyRecord | None:
    row = connection.execute(f"{_SELECT} WHERE id = ?", (key_id,)).fetchone()
    return decode_record(row) if row else None


def _all(connection: sqlite3.Connection) -> list[KeyRecord]:
    return decode_records(connection.execute(f"{_SELECT} ORDER BY created_at, rowid"))


def _revoke(connection: sqlite3.Connection, key_id: str, at: int) -> KeyRecord | None:
    statement = "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"
    if connection.execute(statement, (at, key_id)).rowcount:
        connection.execute(_CHANGED)
    return _get(connection, key_id)


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("SELECT version FROM keys_version").fetchone()[0]
    return version
