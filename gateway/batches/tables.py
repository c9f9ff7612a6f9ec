"""The tables of files and batches, brought up to date before they are first used."""

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from gateway.batches.paging import Page
from gateway.errors import InvalidRequest
from gateway.store.sqlite import Database

T = TypeVar("T")

Condition = tuple[str, tuple[object, ...]]

_STEPS = (
    (
        "CREATE TABLE batch_files (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,"
        " name TEXT NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL,"
        " expires_at INTEGER NOT NULL)",
        "CREATE INDEX batch_files_by_tenant ON batch_files (tenant, seq)",
        "CREATE INDEX batch_files_by_expiry ON batch_files (expires_at)",
        # `data` is the batch as JSON. Whoever runs it holds a lease until a Unix time; each lease has an epoch of its own.
        "CREATE TABLE batches (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,"
        " input_file_id TEXT NOT NULL, is_open INTEGER NOT NULL, created_at INTEGER NOT NULL,"
        " epoch INTEGER NOT NULL DEFAULT 0, lease_until REAL NOT NULL DEFAULT 0, data BLOB NOT NULL)",
        "CREATE INDEX batches_by_tenant ON batches (tenant, seq)",
        "CREATE INDEX batches_open ON batches (tenant, lease_until) WHERE is_open",
        "CREATE INDEX batches_by_age ON batches (created_at)",
        # Lines that have a result.
        "CREATE TABLE batch_lines (batch_id TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE, line INTEGER NOT NULL,"
        " PRIMARY KEY (batch_id, line)) WITHOUT ROWID",
        # How many bytes of a segment hold results that count; what a crash left behind them does not.
        "CREATE TABLE batch_segments (batch_id TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE, kind TEXT NOT NULL,"
        " epoch INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY (batch_id, kind, epoch)) WITHOUT ROWID",
    ),
)


class Tables:
    """Runs work on a database whose tables are there. Both methods raise StoreDown, as those of `Database` do."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_migrated = False

    def exists(self) -> bool:
        """Whether anything was ever stored."""
        return self._is_migrated or self._database.exists()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a transaction that may write."""
        await self._migrate()
        return await self._database.run(work)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something that only reads."""
        await self._migrate()
        return await self._database.read(work)

    async def _migrate(self) -> None:
        if not self._is_migrated:
            await self._database.migrate("batches", _STEPS)
            self._is_migrated = True


def select_page(
    connection: sqlite3.Connection, table: str, columns: str, tenant: str, page: Page, *more: Condition
) -> list[tuple[Any, ...]]:
    """Read one row more than the page has, of what belongs to a tenant. Raises InvalidRequest when `after` names nothing."""
    conditions: list[Condition] = [("tenant = ?", (tenant,)), *more]
    if page.after is not None:
        row = connection.execute(f"SELECT seq FROM {table} WHERE tenant = ? AND id = ?", (tenant, page.after)).fetchone()
        if row is None:
            raise InvalidRequest(
                f"'after' names nothing in this list: '{page.after[:80]}'.", param="after", code="invalid_value"
            )
        conditions.append(("seq > ?" if page.ascending else "seq < ?", row))
    where = " AND ".join(text for text, _ in conditions)
    values = [value for _, some in conditions for value in some]
    order = "ASC" if page.ascending else "DESC"
    query = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY seq {order} LIMIT ?"
    return connection.execute(query, (*values, page.limit + 1)).fetchall()
