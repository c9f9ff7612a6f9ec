"""What keys have spent, by budget period, kept over restarts.

Sums are counted in memory and written in batches by a thread, so a request waits for the disk only when its key is seen for the
first time. Every write adds to what the file holds and reads the sum back, so processes that share the file learn of each
other's spending with the next write of their own. A crash loses what the last half second cost.
"""

import asyncio
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Mapping
from typing import Protocol

from gateway.store.errors import StoreDown
from gateway.store.sqlite import Database

logger = logging.getLogger("gateway.limits.spend")

Entry = tuple[str, str]
"""Key id and name of the period."""

MAX_KNOWN = 20_000

_STEPS = (
    (
        "CREATE TABLE spend (key_id TEXT NOT NULL, period TEXT NOT NULL, usd REAL NOT NULL, "
        "PRIMARY KEY (key_id, period)) WITHOUT ROWID",
    ),
)
# Days are told by their length; months are few, and totals are for ever.
_FORGET = "DELETE FROM spend WHERE length(period) = 10 AND period < date('now', '-62 days')"
_ADD = "INSERT INTO spend VALUES (?, ?, ?) ON CONFLICT (key_id, period) DO UPDATE SET usd = usd + excluded.usd RETURNING usd"
_GET = "SELECT usd FROM spend WHERE key_id = ? AND period = ?"


class SpendStore(Protocol):
    """Sums of dollars by key and period."""

    def known(self, key_id: str, period: str) -> float | None:
        """Return the sum, or None when it has to be loaded first."""
        ...

    async def load(self, key_id: str, period: str) -> None:
        """Make a sum known. Never raises: where the store is down, what this process adds counts alone."""
        ...

    def add(self, key_id: str, period: str, usd: float) -> None:
        """Add to a sum; it is stored within a second."""
        ...

    async def close(self) -> None:
        """Store what was added. May be called twice."""
        ...


class SqliteSpend:
    """A `SpendStore` in the gateway's SQLite file, which is its owner's to close, after this.

    Args:
        flush_interval_s: how long additions are gathered before they are written.
    """

    def __init__(self, database: Database, *, flush_interval_s: float = 0.5) -> None:
        self.failures_total = 0
        self._database, self._flush_interval_s = database, flush_interval_s
        self._is_migrated = False
        self._is_down = False
        self._sums: OrderedDict[Entry, float] = OrderedDict()
        self._added: dict[Entry, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def known(self, key_id: str, period: str) -> float | None:
        """Return the sum, or None when it has to be loaded first."""
        return self._sums.get((key_id, period))

    async def load(self, key_id: str, period: str) -> None:
        """Make a sum known. Whoever waits here may be cancelled without harm to others."""
        if (key_id, period) not in self._sums:
            await asyncio.shield(self._start((key_id, period)))

    def add(self, key_id: str, period: str, usd: float) -> None:
        """Add to a sum; it is written after the flush interval."""
        entry = key_id, period
        self._added[entry] = self._added.get(entry, 0.0) + usd
        if entry in self._sums:
            self._sums[entry] += usd
        self._write_later()

    async def close(self) -> None:
        """Write what was added. May be called twice."""
        if self._added:
            self._start()
        await asyncio.gather(*self._tasks)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_later(self) -> None:
        if self._timer is None and self._added:
            self._timer = asyncio.get_running_loop().call_later(self._flush_interval_s, self._start)

    def _start(self, *wanted: Entry) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._write(wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write(self, wanted: tuple[Entry, ...]) -> None:
        """Write all that was added and read the sums of that and of what is wanted. One at a time, so that sums are exact."""
        async with self._writing:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            batch, self._added = self._added, {}
            batch.update({entry: 0.0 for entry in wanted if entry not in batch})
            try:
                if not self._is_migrated:
                    await self._database.migrate("spend", _STEPS)
                    self._is_migrated = True
                sums = await self._database.run(lambda connection: _add_all(connection, batch))
            except (StoreDown, sqlite3.Error) as error:
                self._keep(batch, error)
                return
            self._is_down = False
            for entry, usd in sums.items():
                self._remember(entry, usd + self._added.get(entry, 0.0))

    def _keep(self, batch: Mapping[Entry, float], error: Exception) -> None:
        """Go on without the store: what could not be written counts in memory, and is tried again after the next interval."""
        self.failures_total += 1
        if not self._is_down:
            self._is_down = True
            logger.error("spending cannot be stored, and is counted in memory until it can: %s", error)
        for entry, usd in batch.items():
            if usd:
                self._added[entry] = self._added.get(entry, 0.0) + usd
            if entry not in self._sums:
                self._remember(entry, self._added.get(entry, 0.0))
        self._write_later()

    def _remember(self, entry: Entry, usd: float) -> None:
        self._sums[entry] = usd
        self._sums.move_to_end(entry)
        if len(self._sums) > MAX_KNOWN:
            self._sums.popitem(last=False)


def _add_all(connection: sqlite3.Connection, batch: Mapping[Entry, float]) -> dict[Entry, float]:
    sums: dict[Entry, float] = {}
    if any(batch.values()):
        connection.execute(_FORGET)
    for entry, usd in batch.items():
        # fetchall, because a statement that returns rows is only done when all are fetched.
        rows = connection.execute(_ADD, (*entry, usd)).fetchall() if usd else connection.execute(_GET, entry).fetchall()
        sums[entry] = rows[0][0] if rows else 0.0
    return sums
