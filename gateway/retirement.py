"""Where generations go that a reload has replaced: they serve on until the last request that may use them has ended."""

import asyncio
import logging
from collections.abc import Iterable
from typing import NamedTuple

from backends.protocol import Backend
from gateway.generation import Generation
from gateway.middleware.drain import Epoch
from gateway.reload import ReloadBusy

logger = logging.getLogger(__name__)

MAX_RETIRED = 8
CLOSE_TIMEOUT_S = 10.0


class _Retired(NamedTuple):
    generation: Generation
    backends: tuple[Backend, ...]
    epochs: tuple[Epoch, ...]


class Retirement:
    """Generations without new requests, eight at most. Belongs to one event loop."""

    def __init__(self) -> None:
        self._retired: dict[asyncio.Task[None], _Retired] = {}

    def __len__(self) -> int:
        """How many still have requests."""
        return len(self._retired)

    def demand_room(self) -> None:
        """Raises ReloadBusy when no other generation can be taken."""
        if len(self._retired) >= MAX_RETIRED:
            text = f"Models that {MAX_RETIRED} earlier reloads replaced still serve requests. Try again when those have ended."
            raise ReloadBusy(text, headers={"retry-after": "30"})

    def add(self, generation: Generation, backends: Iterable[Backend], epoch: Epoch) -> None:
        """Take a generation that was replaced.

        Args:
            backends: of this generation; those that the next one does not have.
            epoch: the requests that came while it was the present one.
        """
        closing = tuple(backends)
        # A backend that stayed through several reloads serves requests of all these epochs.
        epochs = {*(one for retired in self._retired.values() for one in retired.epochs), epoch} if closing else ()
        retired = _Retired(generation, closing, tuple(epochs))
        task = asyncio.get_running_loop().create_task(_see_off(retired))
        self._retired[task] = retired
        task.add_done_callback(self._done)

    async def close(self) -> None:
        """Close everything now; running requests fail with `Unavailable`. May be called twice."""
        for task, retired in list(self._retired.items()):
            for queue in retired.generation.queues.values():
                queue.close()
            await close_backends(retired.backends)
            task.cancel()
            await asyncio.wait((task,))
            await retired.generation.router.close()

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._retired[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a replaced configuration was not closed properly", exc_info=error)


async def _see_off(retired: _Retired) -> None:
    # Its health checks end at once: the next generation goes on with those deployments that it has.
    await retired.generation.router.close()
    for epoch in retired.epochs:
        await epoch.wait_ended()
    await close_backends(retired.backends)
    await retired.generation.router.close()


async def close_backends(backends: Iterable[Backend]) -> None:
    """Close each backend once, last built first, each within 10 s. Never raises."""
    for backend in reversed({id(backend): backend for backend in backends}.values()):
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await backend.close()
        except TimeoutError:
            logger.error("a backend did not close within %g s", CLOSE_TIMEOUT_S)
        except Exception:
            # The others must still be closed.
            logger.exception("a backend failed while it closed")
