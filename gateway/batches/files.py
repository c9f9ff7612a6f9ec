"""Files of tenants: a row in the database for what they are, a file in the folder for what they hold.

The row comes last and goes first, so that a row always has its contents; contents without a row are swept up.
"""

import sqlite3
import time
from collections.abc import Callable
from typing import IO, Any, NamedTuple
from uuid import uuid4

from gateway.batches.config import BatchesConfig
from gateway.batches.errors import Conflicting, FileTooLarge, StorageFull, UnknownFile
from gateway.batches.folder import Folder
from gateway.batches.paging import Listed, Page
from gateway.batches.tables import Tables, select_page
from gateway.schema.batches import FileObject, FilePurpose
from gateway.store.sqlite import Database

SWEEP_AFTER_S = 3600.0
"""Younger contents without a row may belong to an upload that is not finished."""

_COLUMNS = "id, bytes, created_at, expires_at, name, purpose"
_IN_USE = "SELECT id FROM batches WHERE is_open AND input_file_id = ?"


class NewFile(NamedTuple):
    """What is to be stored about contents that are in the folder already. Times are in Unix seconds."""

    id: str
    tenant: str
    name: str
    purpose: FilePurpose
    bytes: int
    created_at: int
    expires_at: int


class FileStore:
    """Keeps the files of all tenants. Every method raises StoreDown and OSError when the database or the disk fails.

    Args:
        clock: Unix seconds.
    """

    def __init__(
        self, database: Database, folder: Folder, config: BatchesConfig, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder = folder
        self._tables = Tables(database)
        self._config = config
        self._clock = clock

    async def create(
        self, tenant: str, name: str, purpose: FilePurpose, source: IO[bytes], *, size: int, expires_s: int | None = None
    ) -> FileObject:
        """Store an upload.

        Args:
            size: bytes in `source`, which is read from its beginning.
            expires_s: seconds after which it goes by itself; at most the configured time, which is also the default.

        Raises:
            FileTooLarge: it has more bytes than one file may have.
            StorageFull: the tenant has too many files, or too many bytes in them.
        """
        if size > self._config.max_file_bytes:
            raise FileTooLarge(size, self._config.max_file_bytes)
        await self._tables.read(lambda connection: self._check_room(connection, tenant, size))
        id = new_file_id()
        stored = await self.folder.write(id, source)
        now = int(self._clock())
        kept_s = min(expires_s or self._config.retention_s, self._config.retention_s)
        new = NewFile(id, tenant, name, purpose, stored, now, now + kept_s)

        def work(connection: sqlite3.Connection) -> None:
            self._check_room(connection, tenant, stored)
            add_file(connection, new)

        try:
            await self._tables.run(work)
        except Exception:
            # Not when cancelled: then nobody knows whether the row was written.
            await self.folder.remove(id)
            raise
        return await self.get(tenant, id)

    async def get(self, tenant: str, id: str) -> FileObject:
        """Describe a file. Raises UnknownFile."""
        return await self._tables.read(lambda connection: find_file(connection, tenant, id))

    async def list(self, tenant: str, page: Page, purpose: str | None) -> Listed[FileObject]:
        """List files, all or those of one purpose. Raises InvalidRequest when the page begins nowhere."""
        more = () if purpose is None else (("purpose = ?", (purpose,)),)
        rows = await self._tables.read(lambda connection: select_page(connection, "batch_files", _COLUMNS, tenant, page, *more))
        return Listed([_describe(row) for row in rows[: page.limit]], len(rows) > page.limit)

    async def open(self, tenant: str, id: str) -> tuple[FileObject, IO[bytes]]:
        """Open the contents. The caller closes them. Raises UnknownFile."""
        found = await self.get(tenant, id)
        try:
            return found, await self.folder.open(found.id)
        except FileNotFoundError:
            raise UnknownFile(id) from None

    async def delete(self, tenant: str, id: str) -> None:
        """Remove a file.

        Raises:
            UnknownFile: there is none.
            Conflicting: a batch that has not ended reads it.
        """

        def work(connection: sqlite3.Connection) -> str:
            found = find_file(connection, tenant, id)
            user = connection.execute(_IN_USE, (found.id,)).fetchone()
            if user is not None:
                raise Conflicting(f"The batch {user[0]} still reads this file. Cancel it first.", "file_in_use")
            connection.execute("DELETE FROM batch_files WHERE id = ?", (found.id,))
            return found.id

        await self.folder.remove(await self._tables.run(work))

    async def purge(self) -> None:
        """Remove what has expired, unless a batch still reads it, and contents that belong to nothing."""
        if not self._tables.exists():
            return
        now = int(self._clock())
        await self.folder.remove(*await self._tables.run(lambda connection: _expire(connection, now)))
        found = await self.folder.names(older_than_s=SWEEP_AFTER_S)
        known = await self._tables.read(_known_names)
        await self.folder.remove(*(name for name in found if name.partition(".")[0] not in known))

    def _check_room(self, connection: sqlite3.Connection, tenant: str, size: int) -> None:
        query = "SELECT count(*), coalesce(sum(bytes), 0) FROM batch_files WHERE tenant = ?"
        count, stored = connection.execute(query, (tenant,)).fetchone()
        if count >= self._config.max_tenant_files:
            raise StorageFull(f"{count} files are stored; the limit is {self._config.max_tenant_files}. Delete some first.")
        if stored + size > self._config.max_tenant_bytes:
            text = f"With this file {stored + size} bytes would be stored; the limit is {self._config.max_tenant_bytes}."
            raise StorageFull(f"{text} Delete some files first.")


def new_file_id() -> str:
    """An id for a file, which is also the name of its contents."""
    return f"file-{uuid4().hex}"


def add_file(connection: sqlite3.Connection, new: NewFile) -> None:
    """Store the row of a file whose contents are complete."""
    connection.execute(
        "INSERT INTO batch_files (id, tenant, name, purpose, bytes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)", new
    )


def find_file(connection: sqlite3.Connection, tenant: str, id: str) -> FileObject:
    """Read a file's row. Raises UnknownFile."""
    query = f"SELECT {_COLUMNS} FROM batch_files WHERE tenant = ? AND id = ?"
    row = connection.execute(query, (tenant, id)).fetchone()
    if row is None:
        raise UnknownFile(id)
    return _describe(row)


def _describe(row: tuple[Any, ...]) -> FileObject:
    id, size, created_at, expires_at, name, purpose = row
    return FileObject(
        id=id,
        bytes=size,
        created_at=created_at,
        expires_at=expires_at,
        filename=name,
        purpose=purpose,
    )


def _expire(connection: sqlite3.Connection, now: int) -> list[str]:
    used = "SELECT input_file_id FROM batches WHERE is_open"
    query = f"DELETE FROM batch_files WHERE expires_at <= ? AND id NOT IN ({used}) RETURNING id"
    return [id for (id,) in connection.execute(query, (now,)).fetchall()]


def _known_names(connection: sqlite3.Connection) -> set[str]:
    query = "SELECT id FROM batch_files UNION ALL SELECT id FROM batches WHERE is_open"
    return {id for (id,) in connection.execute(query)}
