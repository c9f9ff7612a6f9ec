"""All parts of files and batches, put together around one database."""

import time
from collections.abc import Callable

from gateway.batches.attempts import Identify, RunLine, backoff_s
from gateway.batches.batch_store import BatchStore
from gateway.batches.config import BatchesConfig, files_folder
from gateway.batches.files import FileStore
from gateway.batches.folder import Folder
from gateway.batches.leases import Leases
from gateway.batches.runner import BatchRunner
from gateway.store.sqlite import Database


class Batches:
    """What the gateway holds. The database is its owner's to close, after this.

    Attributes:
        files: for the routes.
        store: for the routes.

    Args:
        identify: says what the key behind an identity may do now, None when it is no longer valid.
        clock: Unix seconds.
        delay_s: seconds to wait after a failed attempt at a line, by its number.
    """

    def __init__(
        self,
        database: Database,
        config: BatchesConfig,
        *,
        identify: Identify,
        clock: Callable[[], float] = time.time,
        delay_s: Callable[[int], float] = backoff_s,
    ) -> None:
        self._folder = Folder(files_folder(database.path))
        self.files = FileStore(database, self._folder, config, clock=clock)
        self.store = BatchStore(database, config, clock=clock)
        leases = Leases(database, config, clock=clock)
        self._runner = BatchRunner(self.store, self.files, leases, config, identify=identify, clock=clock, delay_s=delay_s)

    def start(self, run_line: RunLine) -> None:
        """Begin to run batches, in the running event loop."""
        self._runner.start(run_line)

    async def drain(self) -> None:
        """Begin no further line, and return when those that run have ended."""
        await self._runner.drain()

    async def close(self) -> None:
        """Stop at once. May be called twice."""
        await self._runner.close()
        await self._folder.close()
