"""Writes results down before they count: first into the folder, then which lines they are into the database.

Whatever waits is written together, so that many quick lines share two syncs of the disk. Every lease writes files of its own:
bytes that a crash cut short lie behind what the database counts, where nobody reads them.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from gateway.batches.batch import Batch
from gateway.batches.folder import Folder
from gateway.batches.leases import Kind, Lease, Leases, Segment

KINDS: tuple[Kind, ...] = ("output", "error")


class Result(NamedTuple):
    """The outcome of one line: a line of the output file, or of the error file where it `failed`."""

    line: int
    data: bytes
    failed: bool


class LedgerBroken(Exception):
    """An earlier write failed, so nobody knows what is on the disk; only a new lease can go on."""


class Ledger:
    """The results of one batch under one lease.

    Attributes:
        batch: as it was after the last write.
    """

    def __init__(self, leases: Leases, folder: Folder, lease: Lease, batch: Batch) -> None:
        self.batch = batch
        self._leases = leases
        self._folder = folder
        self._lease = lease
        self._sizes: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        self._waiting: list[Result] = []
        # Calls of `write` so far, and the last one whose results are written.
        self._asked = 0
        self._written = 0
        self._writing = asyncio.Lock()
        self._is_broken = False

    async def write(self, results: Sequence[Result]) -> None:
        """Return once the results are on the disk and count.

        Raises:
            LeaseLost: they do not count, because somebody else works on the batch.
            StoreDown: the database failed.
            OSError: the disk failed.
            LedgerBroken: an earlier write did.
        """
        self._waiting += results
        self._asked += 1
        mine = self._asked
        async with self._writing:
            if self._is_broken:
                raise LedgerBroken("an earlier write failed")
            # Who has been served leaves at once, so that those behind gather for one write together.
            if mine > self._written:
                taken, self._waiting, last = self._waiting, [], self._asked
                self._is_broken = True
                await self._commit(taken)
                self._is_broken, self._written = False, last

    async def _commit(self, results: list[Result]) -> None:
        segments: list[Segment] = []
        for kind in KINDS:
            data = b"".join(result.data for result in results if result.failed == (kind == "error"))
            if data:
                await self._folder.append(segment_name(self._lease.batch_id, self._lease.epoch, kind), data)
                self._sizes[kind] += len(data)
                segments.append(Segment(kind, self._lease.epoch, self._sizes[kind]))
        self.batch = await self._leases.record(
            self._lease,
            [result.line for result in results if not result.failed],
            [result.line for result in results if result.failed],
            sum(len(result.data) for result in results),
            segments,
        )


def segment_name(batch_id: str, epoch: int, kind: Kind) -> str:
    """The file for results of one kind under one lease."""
    return f"{batch_id}.{epoch}.{kind}"
