"""What operators ask of the whole gateway, whichever of its workers is asked: to reload, and its metrics.

A worker that is asked for metrics asks the others too, and adds everything up. What a worker has counted must not vanish with
it, or the sums would fall, which Prometheus takes for a restart and shows as a burst of traffic. So every worker writes down
what it last told anybody; its successor begins with that, and meanwhile the others read the file.
"""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.core import Metric

from gateway.errors import ApiError
from gateway.peers import Peers
from gateway.reload import Reloader
from gateway.services import Services
from gateway.telemetry.merge import living_on, merge, pack, render, unpack

METRICS_TIMEOUT_S = 3.0
RELOAD_TIMEOUT_S = 900.0
"""For other workers; loading models takes a while."""


class NothingToReload(ApiError):
    """This gateway was not started from a configuration that could be read again."""

    status = 501
    code = "reload_not_supported"


class ReloadIncomplete(ApiError):
    """The worker that was asked has reloaded, another one has not."""

    code = "reload_incomplete"


class Operation:
    """Of one gateway.

    Args:
        reloader: None where there is nothing to read again.
        peers: the other workers; None where there are none.
    """

    def __init__(self, services: Services, reloader: Reloader | None = None, peers: Peers | None = None) -> None:
        self._services = services
        self._reloader = reloader
        self._peers = peers
        self._past: list[Metric] = []
        self._telling = asyncio.Lock()

    async def start(self) -> None:
        """Take over from the worker that had this place before, and answer the others. Before the first request: what it
        told would be too little. Raises OSError."""
        if self._peers is not None:
            self._past = living_on(await asyncio.to_thread(_read, _file(self._peers, self._peers.index)))
            await self._peers.listen({"metrics": self._tell, "reload": self._reload_for_another})

    async def close(self) -> None:
        """Write down the last metrics, and answer nobody any more. May be called twice."""
        if self._peers is not None:
            with suppress(OSError):
                await self._tell()
            await self._peers.close()

    async def reload(self) -> dict[str, Any]:
        """Reload this worker, then the others, and say what changed.

        Raises:
            BadConfiguration: nothing was changed anywhere.
            ReloadBusy: nothing was changed anywhere; try again later.
            ReloadIncomplete: another worker could not follow.
            NothingToReload: there is no configuration to read.
        """
        if self._reloader is None:
            raise NothingToReload("This gateway has no configuration that could be read again.")
        plan = await self._reloader.reload()
        if self._peers is not None:
            answers = await self._peers.ask("reload", RELOAD_TIMEOUT_S)
            faults = [f"worker {n}: {_fault(answer)}" for n, answer in answers.items() if answer is None or answer]
            if faults:
                raise ReloadIncomplete(f"Not every worker has reloaded: {'; '.join(faults)}")
        return plan.report()

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics of all workers together; `accept` is the scraper's Accept header. Returns the body and its type."""
        if self._peers is None:
            return self._services.telemetry.exposition(await self._services.healths(), accept)
        own = await self._tell()
        answers = await self._peers.ask("metrics", METRICS_TIMEOUT_S)
        return await asyncio.to_thread(_add_up, own, answers, self._peers, accept)

    async def _tell(self) -> bytes:
        assert self._peers is not None
        # One after the other, so that the file is never older than what somebody was told.
        async with self._telling:
            present = self._services.telemetry.collect(await self._services.healths())
            return await asyncio.to_thread(_write, _file(self._peers, self._peers.index), [self._past, present])

    async def _reload_for_another(self) -> bytes:
        if self._reloader is None:
            return b"there is nothing to reload"
        try:
            await self._reloader.reload(wait=True)
        except ApiError as error:
            return error.message.encode()
        return b""


def _add_up(own: bytes, answers: dict[int, bytes | None], peers: Peers, accept: str) -> tuple[bytes, str]:
    parts: list[Iterable[Metric]] = [unpack(own)]
    for index, answer in answers.items():
        parts.append(living_on(_read(_file(peers, index))) if answer is None else unpack(answer))
    return render(merge(parts), accept)


def _fault(answer: bytes | None) -> str:
    return "no answer" if answer is None else answer.decode()


def _file(peers: Peers, index: int) -> Path:
    return peers.folder / f"{index}.metrics"


def _read(file: Path) -> list[Metric]:
    try:
        return unpack(file.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return []


def _write(file: Path, parts: list[list[Metric]]) -> bytes:
    data = pack(merge(parts))
    new = file.with_suffix(".new")
    with suppress(OSError):
        # A full disk must not cost anybody the metrics.
        new.write_bytes(data)
        os.replace(new, file)
    return data
