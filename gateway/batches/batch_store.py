"""Batches as their tenants see them: made, looked at, listed, cancelled."""

import asyncio
import sqlite3
import time
from collections.abc import Callable

from gateway.batches.batch import Batch, cancel, new_batch
from gateway.batches.batch_rows import decode_batch, find_batch, insert_batch, save_batch
from gateway.batches.config import BatchesConfig
from gateway.batches.errors import StorageFull, UnknownFile
from gateway.batches.files import find_file
from gateway.batches.paging import Listed, Page
from gateway.batches.tables import Tables, select_page
from gateway.errors import InvalidRequest
from gateway.identity import Identity
from gateway.schema.batches import BatchRequest
from gateway.store.sqlite import Database

_OPEN_OF = "SELECT count(*) FROM batches WHERE is_open AND tenant = ?"


class BatchStore:
    """Keeps the batches of all tenants. Every method raises StoreDown when the database fails.

    Attributes:
        changed: set whenever there may be something new to do; whoever runs batches in this process clears it.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, database: Database, config: BatchesConfig, *, clock: Callable[[], float] = time.time) -> None:
        self.changed = asyncio.Event()
        self._tables = Tables(database)
        self._config = config
        self._clock = clock

    async def create(self, identity: Identity, request: BatchRequest) -> Batch:
        """Make a batch of a file. The file is looked at later.

        Raises:
            UnknownFile: there is no such file.
            InvalidRequest: its purpose is another.
            StorageFull: the tenant has too many unfinished batches.
        """
        batch = new_batch(identity, request, int(self._clock()))
        await self._tables.run(lambda connection: self._insert(connection, batch))
        self.changed.set()
        return batch

    async def get(self, tenant: str, id: str) -> Batch:
        """Look at a batch. Raises UnknownBatch."""
        return await self._tables.read(lambda connection: find_batch(connection, tenant, id))

    async def list(self, tenant: str, page: Page) -> Listed[Batch]:
        """List batches. Raises InvalidRequest when the page begins nowhere."""
        rows = await self._tables.read(lambda connection: select_page(connection, "batches", "data", tenant, page))
        return Listed([decode_batch(row[0]) for row in rows[: page.limit]], len(rows) > page.limit)

    async def cancel(self, tenant: str, id: str) -> Batch:
        """Ask for an early end. Lines that run end, those that have not begun are not run.

        Raises:
            UnknownBatch: there is none.
            Conflicting: it has ended, or is about to.
        """

        def work(connection: sqlite3.Connection) -> Batch:
            batch = cancel(find_batch(connection, tenant, id), int(self._clock()))
            save_batch(connection, batch)
            return batch

        batch = await self._tables.run(work)
        self.changed.set()
        return batch

    def _insert(self, connection: sqlite3.Connection, batch: Batch) -> None:
        tenant = batch.identity.tenant
        try:
            purpose = find_file(connection, tenant, batch.input_file_id).purpose
        except UnknownFile:
            raise UnknownFile(batch.input_file_id, "input_file_id") from None
        if purpose != "batch":
            text = f"The file has the purpose '{purpose}'; a batch reads files with the purpose 'batch'."
            raise InvalidRequest(text, param="input_file_id", code="invalid_file_purpose")
        (count,) = connection.execute(_OPEN_OF, (tenant,)).fetchone()
        if count >= self._config.max_tenant_batches:
            text = f"{count} batches are unfinished; the limit is {self._config.max_tenant_batches}."
            raise StorageFull(text, code="too_many_batches")
        insert_batch(connection, batch)
