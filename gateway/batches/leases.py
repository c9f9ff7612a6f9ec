"""Batches as those see them who run them: taken, worked on, ended.

Several processes may share one database. A batch belongs to whoever holds its lease, which must be renewed; each lease has an
epoch, and a write with an old epoch is refused. So a process that slept too long can run a line twice at worst, but never
count it twice.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from gateway.batches.batch import WINDOW_S, Batch, count, finish
from gateway.batches.batch_rows import decode_batch, save_batch
from gateway.batches.config import BatchesConfig
from gateway.batches.files import NewFile, add_file
from gateway.batches.tables import Tables
from gateway.store.sqlite import Database

Kind = Literal["output", "error"]

PER_TENANT = 4
"""Batches of one tenant that are worked on at the same time; the others wait for their turn, oldest first."""

_RUNNING = (
    "(SELECT count(*) FROM batches other WHERE other.is_open AND other.tenant = batches.tenant AND other.lease_until > ?)"
)
_FREE = (
    f"SELECT id, {_RUNNING} AS running FROM batches WHERE is_open AND lease_until <= ? AND running < ?"
    " ORDER BY running, seq LIMIT 1"
)
_TAKE = "UPDATE batches SET epoch = epoch + 1, lease_until = ? WHERE id = ? RETURNING epoch, data"
_HELD = "SELECT data FROM batches WHERE id = ? AND epoch = ?"
_ADD_SEGMENT = (
    "INSERT INTO batch_segments (batch_id, kind, epoch, bytes) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (batch_id, kind, epoch) DO UPDATE SET bytes = excluded.bytes"
)


class LeaseLost(Exception):
    """Somebody else has taken the batch over, or it is gone."""


class Lease(NamedTuple):
    """The right to work on a batch."""

    batch_id: str
    epoch: int


class Segment(NamedTuple):
    """Results of one kind that were written under one lease, and how many bytes of the file count."""

    kind: Kind
    epoch: int
    size: int


class Leases:
    """The runner's side of the store. Every method raises StoreDown when the database fails, and those that take a lease
    raise LeaseLost.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, database: Database, config: BatchesConfig, *, clock: Callable[[], float] = time.time) -> None:
        self._tables = Tables(database)
        self._lease_s = config.lease_s
        self._retention_s = config.retention_s
        self._clock = clock

    async def take(self) -> tuple[Lease, Batch] | None:
        """Take a batch that nobody works on; of the tenant with the fewest running ones, the oldest first."""
        if not self._tables.exists():
            return None
        now = self._clock()
        values = (now, now, PER_TENANT)
        # Looking is cheap and locks nobody out.
        if await self._tables.read(lambda connection: connection.execute(_FREE, values).fetchone()) is None:
            return None

        def work(connection: sqlite3.Connection) -> tuple[Lease, Batch] | None:
            found = connection.execute(_FREE, values).fetchone()
            if found is None:
                return None
            epoch, data = connection.execute(_TAKE, (now + self._lease_s, found[0])).fetchall()[0]
            return Lease(found[0], epoch), decode_batch(data)

        return await self._tables.run(work)

    async def renew(self, lease: Lease) -> Batch:
        """Keep a batch for longer, and see how it is."""

        def work(connection: sqlite3.Connection) -> Batch:
            batch = _held(connection, lease)
            connection.execute("UPDATE batches SET lease_until = ? WHERE id = ?", (self._clock() + self._lease_s, batch.id))
            return batch

        return await self._tables.run(work)

    async def release(self, lease: Lease) -> None:
        """Give a batch back, so that anybody may go on with it at once."""
        query = "UPDATE batches SET lease_until = 0 WHERE id = ? AND epoch = ?"
        await self._tables.run(lambda connection: connection.execute(query, lease).rowcount)

    async def change(self, lease: Lease, step: Callable[[Batch, int], Batch]) -> Batch:
        """Take a batch one step on. `step` gets the batch and the time."""

        def work(connection: sqlite3.Connection) -> Batch:
            batch = step(_held(connection, lease), int(self._clock()))
            save_batch(connection, batch)
            return batch

        return await self._tables.run(work)

    async def done(self, lease: Lease) -> set[int]:
        """The numbers of all lines that have a result."""
        query = "SELECT line FROM batch_lines WHERE batch_id = ?"
        return await self._tables.read(lambda connection: {line for (line,) in connection.execute(query, (lease.batch_id,))})

    async def record(
        self, lease: Lease, completed: Sequence[int], failed: Sequence[int], size: int, segments: Sequence[Segment]
    ) -> Batch:
        """Count lines whose results are in segments, all or none.

        Args:
            completed: line numbers.
            failed: line numbers.
            size: bytes of these results.
            segments: what counts of the segments now.
        """

        def work(connection: sqlite3.Connection) -> Batch:
            batch = count(_held(connection, lease), len(completed), len(failed), size)
            lines = [(batch.id, line) for line in (*completed, *failed)]
            connection.executemany("INSERT INTO batch_lines (batch_id, line) VALUES (?, ?)", lines)
            connection.executemany(_ADD_SEGMENT, [(batch.id, kind, epoch, size) for kind, epoch, size in segments])
            save_batch(connection, batch)
            return batch

        return await self._tables.run(work)

    async def segments(self, lease: Lease) -> list[Segment]:
        """All segments that hold results, oldest first."""
        query = "SELECT kind, epoch, bytes FROM batch_segments WHERE batch_id = ? ORDER BY epoch"
        rows = await self._tables.read(lambda connection: connection.execute(query, (lease.batch_id,)).fetchall())
        return [Segment(*row) for row in rows]

    async def finish(self, lease: Lease, output: NewFile | None, error: NewFile | None) -> Batch:
        """End a batch, and make its results visible as files."""

        def work(connection: sqlite3.Connection) -> Batch:
            batch = _held(connection, lease)
            for new in (output, error):
                if new is not None:
                    add_file(connection, new)
            batch = finish(batch, output and output.id, error and error.id, int(self._clock()))
            connection.execute("DELETE FROM batch_lines WHERE batch_id = ?", (batch.id,))
            connection.execute("DELETE FROM batch_segments WHERE batch_id = ?", (batch.id,))
            save_batch(connection, batch)
            return batch

        return await self._tables.run(work)

    async def purge(self) -> None:
        """Forget batches whose files are gone."""
        if self._tables.exists():
            oldest = int(self._clock()) - self._retention_s - WINDOW_S
            query = "DELETE FROM batches WHERE created_at <= ?"
            await self._tables.run(lambda connection: connection.execute(query, (oldest,)).rowcount)


def _held(connection: sqlite3.Connection, lease: Lease) -> Batch:
    row = connection.execute(_HELD, lease).fetchone()
    if row is None:
        raise LeaseLost(f"{lease.batch_id} is worked on by somebody else")
    return decode_batch(row[0])
