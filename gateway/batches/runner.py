"""Looks for batches that nobody works on, and works them off: side by side, a few lines at a time.

A batch whose work fails keeps its lease until that ends. So what is broken for good is tried a few times a minute, not as fast
as the machine can.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from gateway.batches.attempts import Attempts, Identify, RunLine, backoff_s, happens_within
from gateway.batches.batch import Batch
from gateway.batches.batch_run import BatchRun
from gateway.batches.batch_store import BatchStore
from gateway.batches.config import BatchesConfig
from gateway.batches.files import FileStore
from gateway.batches.leases import Lease, LeaseLost, Leases
from gateway.batches.ledger import LedgerBroken
from gateway.store.errors import StoreDown

logger = logging.getLogger(__name__)

MAX_BATCHES = 64
"""Batches that one process works on at the same time."""

_LOOK_S = 2.0
_TIDY_S = 3600.0


class BatchRunner:
    """Runs the batches of a store. Belongs to one event loop.

    Args:
        identify: what the key behind an identity may do now.
        clock: Unix seconds.
        delay_s: seconds to wait after a failed attempt at a line, by its number.
    """

    def __init__(
        self,
        batches: BatchStore,
        files: FileStore,
        leases: Leases,
        config: BatchesConfig,
        *,
        identify: Identify,
        clock: Callable[[], float] = time.time,
        delay_s: Callable[[int], float] = backoff_s,
    ) -> None:
        self._batches = batches
        self._files = files
        self._leases = leases
        self._config = config
        self._identify = identify
        self._clock = clock
        self._delay_s = delay_s
        self._attempts: Attempts | None = None
        self._following: asyncio.Task[None] | None = None
        self._runs: dict[asyncio.Task[None], BatchRun] = {}
        self._is_draining = False
        self._is_down = False
        self._tidied_at = -_TIDY_S

    def start(self, run_line: RunLine) -> None:
        """Begin to work. `run_line` answers one request."""
        self._attempts = Attempts(run_line, self._config, identify=self._identify, delay_s=self._delay_s)
        self._following = asyncio.create_task(self._follow(self._attempts))

    async def drain(self) -> None:
        """Begin no further line, and return when those that run have ended. What is left waits for the next start."""
        self._is_draining = True
        self._batches.changed.set()
        for run in self._runs.values():
            run.leave()
        if self._following is not None:
            await asyncio.wait([self._following])
        if self._runs:
            await asyncio.wait(list(self._runs))

    async def close(self) -> None:
        """Stop at once; lines that are cut off will be run again. May be called twice."""
        tasks = [task for task in (self._following, *self._runs) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, attempts: Attempts) -> None:
        changed = self._batches.changed
        while not self._is_draining:
            try:
                await self._tidy()
                await self._take_all(attempts)
                self._is_down = False
            except (StoreDown, OSError) as error:
                if not self._is_down:
                    logger.error("batches cannot be run: %s", error)
                self._is_down = True
            except Exception:
                logger.exception("looking for batches failed because of a bug")
            if await happens_within(changed, _LOOK_S):
                changed.clear()
                for run in self._runs.values():
                    run.look()

    async def _take_all(self, attempts: Attempts) -> None:
        while len(self._runs) < MAX_BATCHES and not self._is_draining and (taken := await self._leases.take()):
            lease, batch = taken
            run = BatchRun(lease, batch, self._leases, self._files.folder, attempts, self._config, self._clock)
            if self._is_draining:
                run.leave()
            task = asyncio.create_task(self._watch(run, lease, batch))
            self._runs[task] = run
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._runs[task]
        # There is room for another one.
        self._batches.changed.set()

    async def _watch(self, run: BatchRun, lease: Lease, batch: Batch) -> None:
        """Run a batch, and say in the log what came of it."""
        logger.info("batch %s is worked on (%s, lease %d)", batch.id, batch.status, lease.epoch)
        try:
            await run.run()
        except* LeaseLost as lost:
            logger.warning("batch %s was taken over by another process: %s", batch.id, _texts(lost))
        except* (StoreDown, OSError, LedgerBroken) as down:
            logger.error("batch %s is interrupted, results cannot be stored: %s", batch.id, _texts(down))
        except* Exception:
            logger.exception("batch %s is interrupted", batch.id)

    async def _tidy(self) -> None:
        """Once an hour, remove what is too old."""
        if time.monotonic() - self._tidied_at >= _TIDY_S:
            await self._files.purge()
            await self._leases.purge()
            self._tidied_at = time.monotonic()


def _texts(group: BaseExceptionGroup[BaseException]) -> str:
    return "; ".join(str(error) for error in group.exceptions)
