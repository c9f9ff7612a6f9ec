"""Writing results down: together where several wait, and never again after a write that failed."""

import asyncio
from typing import Any

import pytest

from gateway.batches.batch import begin
from gateway.batches.leases import LeaseLost, Leases
from gateway.batches.ledger import Ledger, LedgerBroken, Result
from gateway.store.errors import StoreDown
from tests.gateway.batches.rig import Rig, input_file, rigged


class CountingLeases(Leases):
    """Counts writes; the first one fails where `fails` is set."""

    writes = 0
    fails = False

    async def record(self, *args: Any) -> Any:
        self.writes += 1
        if self.fails and self.writes == 1:
            raise StoreDown("scripted")
        return await super().record(*args)


async def ledger_of(rig: Rig) -> Ledger:
    """The ledger of a batch with ten lines that somebody works on."""
    await rig.submit(input_file("a"))
    taken = await rig.leases.take()
    assert taken is not None
    lease, _ = taken
    batch = await rig.leases.change(lease, lambda batch, now: begin(batch, 10, now))
    return Ledger(rig.leases, rig.folder, lease, batch)


def results(*lines: int) -> list[Result]:
    return [Result(line, b"%d\n" % line, line % 2 == 0) for line in lines]


async def test_what_waits_is_written_together() -> None:
    async with rigged(leases=CountingLeases) as rig:
        ledger = await ledger_of(rig)
        await asyncio.gather(*(ledger.write(results(line)) for line in range(1, 11)))
        assert isinstance(rig.leases, CountingLeases)
        assert rig.leases.writes == 2
        batch = ledger.batch
        assert (batch.completed, batch.failed, batch.output_bytes) == (5, 5, 21)


async def test_quick_lines_share_their_writes() -> None:
    async with rigged(leases=CountingLeases) as rig:
        ledger = await ledger_of(rig)

        async def run(first: int) -> None:
            for line in range(first, first + 20):
                await ledger.write(results(line))

        await asyncio.gather(*(run(first) for first in range(1, 161, 20)))
        assert isinstance(rig.leases, CountingLeases)
        assert ledger.batch.completed + ledger.batch.failed == 160
        assert rig.leases.writes <= 60


async def test_nothing_is_written_after_a_write_that_failed() -> None:
    async with rigged(leases=CountingLeases) as rig:
        ledger = await ledger_of(rig)
        assert isinstance(rig.leases, CountingLeases)
        rig.leases.fails = True
        outcomes = await asyncio.gather(*(ledger.write(results(line)) for line in (1, 3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreDown, LedgerBroken]
        with pytest.raises(LedgerBroken):
            await ledger.write(results(5))
        assert rig.leases.writes == 1


async def test_a_line_counts_once() -> None:
    async with rigged() as rig:
        ledger = await ledger_of(rig)
        await ledger.write(results(1))
        with pytest.raises(Exception, match="UNIQUE"):
            await ledger.write(results(3, 1))
        assert (await rig.store.get("ann", ledger.batch.id)).completed == 1


async def test_nothing_counts_without_the_lease() -> None:
    async with rigged() as rig:
        ledger = await ledger_of(rig)
        rig.clock.now += rig.config.lease_s + 1
        assert await rig.leases.take() is not None
        with pytest.raises(LeaseLost):
            await ledger.write(results(1))
        assert (await rig.store.get("ann", ledger.batch.id)).completed == 0
