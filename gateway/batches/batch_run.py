"""Works one batch off: checks it, runs its lines, puts the results together.

Everything that was done is on the disk before the next step, so whoever takes a batch over goes on where the last one was.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from gateway.batches.attempts import Attempts, happens_within
from gateway.batches.batch import Batch, begin, finalize, refuse
from gateway.batches.config import BatchesConfig
from gateway.batches.files import NewFile, new_file_id
from gateway.batches.folder import Folder, Position
from gateway.batches.leases import Kind, Lease, LeaseLost, Leases
from gateway.batches.ledger import Ledger, Result, segment_name
from gateway.batches.lines import Line, is_blank, read_line, unanswered
from gateway.batches.validate import validate
from gateway.schema.batches import BatchError
from gateway.store.errors import StoreDown

_RENEWALS_PER_LEASE = 3

_NOT_RUN = {
    "cancelling": ("batch_cancelled", "The batch was cancelled before this request was run."),
    "finalizing": ("batch_expired", "The completion window ended before this request was run."),
}


class BatchRun:
    """The work on one batch under one lease.

    Args:
        clock: Unix seconds.
    """

    def __init__(
        self,
        lease: Lease,
        batch: Batch,
        leases: Leases,
        folder: Folder,
        attempts: Attempts,
        config: BatchesConfig,
        clock: Callable[[], float],
    ) -> None:
        self._lease = lease
        self._leases = leases
        self._folder = folder
        self._attempts = attempts
        self._config = config
        self._clock = clock
        self._ledger = Ledger(leases, folder, lease, batch)
        self._stop = asyncio.Event()
        self._looking = asyncio.Event()
        self._is_leaving = False

    def look(self) -> None:
        """Find out at once whether the batch was cancelled."""
        self._looking.set()

    def leave(self) -> None:
        """Begin no further line, and end when those that run have ended."""
        self._is_leaving = True
        self._stop.set()

    async def run(self) -> None:
        """Work until the batch has ended, or it is time to leave.

        Raises (lines run in a task group, so alone or in an ExceptionGroup):
            LeaseLost: somebody else works on it.
            StoreDown, OSError, LedgerBroken: what was done cannot be written down.
        """
        renewing = asyncio.create_task(self._renew())
        try:
            await self._work()
            await self._leases.release(self._lease)
        except asyncio.CancelledError:
            # Whoever starts next need not wait for the lease to end.
            await self._leases.release(self._lease)
            raise
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing

    async def _work(self) -> None:
        batch = self._ledger.batch
        if not await self._folder.has(batch.input_file_id):
            gone = BatchError(code="file_not_found", message="The input file is gone.")
            await self._change(lambda batch, now: refuse(batch, (gone,), now))
            return
        if batch.status == "validating" and not await self._check():
            return
        self._watch(self._ledger.batch)
        await self._run_lines()
        if not self._is_leaving:
            await self._finish()

    async def _check(self) -> bool:
        """Validate the input; says whether it is good."""
        checked = await validate(self._folder, self._ledger.batch, self._config)
        if checked.errors:
            await self._change(lambda batch, now: refuse(batch, checked.errors, now))
            return False
        await self._change(lambda batch, now: begin(batch, checked.total, now))
        return True

    async def _run_lines(self) -> None:
        places = asyncio.Semaphore(self._config.concurrency)
        async with asyncio.TaskGroup() as group, aclosing(self._remaining()) as slices:
            async for lines in slices:
                for line in lines:
                    await places.acquire()
                    self._watch(self._ledger.batch)
                    if self._stop.is_set():
                        return
                    group.create_task(self._run_line(line)).add_done_callback(lambda _: places.release())

    async def _run_line(self, line: Line) -> None:
        batch, limit = self._ledger.batch, self._config.max_output_bytes
        if batch.output_bytes >= limit:
            text = f"The results of this batch have {batch.output_bytes} bytes; the limit is {limit}."
            data = unanswered(line.custom_id, "output_limit_exceeded", text)
            await self._ledger.write([Result(line.number, data, True)])
        elif (result := await self._attempts.result(batch, line, self._stop)) is not None:
            await self._ledger.write([result])

    async def _finish(self) -> None:
        """Give up what was not run, and make files of the results."""
        batch = await self._change(finalize)
        # A batch that was cancelled before it was checked has no lines.
        if batch.total:
            code, message = _NOT_RUN[batch.status]
            async with aclosing(self._remaining()) as slices:
                async for lines in slices:
                    given_up = (Result(line.number, unanswered(line.custom_id, code, message), True) for line in lines)
                    await self._ledger.write(list(given_up))
        output, error = await self._join("output"), await self._join("error")
        await self._leases.finish(self._lease, output, error)
        written = await self._folder.names()
        await self._folder.remove(*(name for name in written if name.startswith(f"{batch.id}.")))

    async def _join(self, kind: Kind) -> NewFile | None:
        """Put the results of one kind together; None when there are none."""
        batch = self._ledger.batch
        parts = [
            (segment_name(batch.id, segment.epoch, kind), segment.size)
            for segment in await self._leases.segments(self._lease)
            if segment.kind == kind
        ]
        if not parts:
            return None
        id, now = new_file_id(), int(self._clock())
        size = await self._folder.join(id, parts)
        expires_at = now + (batch.output_expires_s or self._config.retention_s)
        return NewFile(id, batch.identity.tenant, f"{batch.id}_{kind}.jsonl", "batch_output", size, now, expires_at)

    async def _remaining(self) -> AsyncGenerator[list[Line]]:
        """The lines without a result, in slices and in their order."""
        batch, position, done = self._ledger.batch, Position(), await self._leases.done(self._lease)
        max_line_bytes = self._config.max_line_bytes
        while True:
            raws, position = await self._folder.lines(batch.input_file_id, position, max_line_bytes=max_line_bytes)
            if not raws:
                return
            missing = [raw for raw in raws if raw.number not in done and not is_blank(raw)]
            yield [read_line(raw, batch.endpoint, max_line_bytes=max_line_bytes) for raw in missing]

    async def _change(self, step: Callable[[Batch, int], Batch]) -> Batch:
        self._ledger.batch = await self._leases.change(self._lease, step)
        return self._ledger.batch

    async def _renew(self) -> None:
        """Keep the lease, and notice what others did to the batch."""
        while True:
            await happens_within(self._looking, self._config.lease_s / _RENEWALS_PER_LEASE)
            self._looking.clear()
            try:
                self._watch(await self._leases.renew(self._lease))
            except LeaseLost:
                self.leave()
                return
            except StoreDown:
                # Whatever is written next says so too.
                continue

    def _watch(self, batch: Batch) -> None:
        if batch.is_stopping or self._clock() >= batch.expires_at:
            self._stop.set()
