"""Whatever is cut off, and wherever: in the end every line has exactly one result, and the counts say so.

Writes fail before and after they reach the database, runners are closed in the middle, batches are cancelled and run out of
time, at moments that hypothesis chooses.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.batches.batch import WINDOW_S, Batch
from gateway.batches.errors import Conflicting
from gateway.batches.leases import Lease, Leases, Segment
from gateway.store.errors import StoreDown
from tests.gateway.batches.rig import Rig, input_file, names, rigged

EVENTS = ("before", "after", "close", "cancel", "expire", "none", "none", "none")


class FlakyLeases(Leases):
    """Fails at the writes that a script names: `before` anything is stored, or `after` it was."""

    script: list[str]

    async def record(
        self, lease: Lease, completed: Sequence[int], failed: Sequence[int], size: int, segments: Sequence[Segment]
    ) -> Batch:
        event = self.script.pop() if self.script else "none"
        if event == "before":
            raise StoreDown("scripted")
        batch = await super().record(lease, completed, failed, size, segments)
        if event == "after":
            raise StoreDown("scripted")
        self.seen.append(event)
        return batch

    seen: list[str]


async def play(rig: Rig, lines: list[int]) -> tuple[Batch, list[Any], list[Any]]:
    """Run a batch to its end through everything that the script holds."""
    leases = rig.leases
    assert isinstance(leases, FlakyLeases)

    async def answer(say: str) -> tuple[int, Any]:
        status = lines[int(say)]
        await asyncio.sleep(0)
        return status, {}

    batch = await rig.submit(input_file(*(str(n) for n in range(len(lines)))))
    runner = rig.runner(answer)
    for _ in range(3000):
        batch = await rig.store.get("ann", batch.id)
        if not batch.is_open:
            break
        for event in leases.seen:
            if event == "close":
                await runner.close()
                runner = rig.runner(answer)
            elif event == "cancel" and batch.status == "in_progress":
                # It may have come to its end in between.
                with suppress(Conflicting):
                    await rig.store.cancel("ann", batch.id)
            elif event == "expire":
                rig.clock.now += WINDOW_S
        leases.seen.clear()
        # Nobody waits for a lease that was lost: time passes quickly here.
        rig.clock.now += rig.config.lease_s / 10
        rig.store.changed.set()
        await asyncio.sleep(0.001)
    await runner.drain()
    assert not batch.is_open, batch
    return batch, *await rig.results(batch)


@settings(deadline=None, max_examples=40)
@given(
    lines=st.lists(st.sampled_from([200, 200, 200, 400, 503]), min_size=1, max_size=12),
    script=st.lists(st.sampled_from(EVENTS), max_size=8),
    concurrency=st.integers(1, 4),
)
def test_every_line_has_exactly_one_result(lines: list[int], script: list[str], concurrency: int) -> None:
    async def check() -> None:
        async with rigged(leases=FlakyLeases, concurrency=concurrency, max_attempts=2, lease_s=1) as rig:
            assert isinstance(rig.leases, FlakyLeases)
            rig.leases.script, rig.leases.seen = list(script), []
            batch, output, error = await play(rig, lines)
            leftovers = [name for name in await rig.folder.names() if name.startswith(batch.id)]
        every = Counter(names(output) + names(error))
        assert every == Counter(str(n) for n in range(len(lines)))
        assert (batch.total, batch.completed, batch.failed) == (len(lines), len(output), len(error))
        assert all(lines[int(line["custom_id"])] == 200 for line in output)
        assert batch.status in ("completed", "cancelled", "expired")
        if batch.status == "completed":
            assert all(line["error"] is None for line in error)
        # A runner that was closed between the last write and this leaves it to the sweep.
        assert leftovers == [] or "close" in script

    asyncio.run(check())
