import asyncio
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.gateway.batches.rig import input_file, names, rigged

ROOT = Path(__file__).resolve().parents[3]
LINES, CONCURRENCY = 150, 3


def start(folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "tests.gateway.batches.batch_child", str(folder)], cwd=ROOT)


def counted(folder: Path) -> set[int]:
    """The lines that have a result, as another process sees them."""
    connection = sqlite3.connect(folder / "baton.db", timeout=5)
    try:
        return {line for (line,) in connection.execute("SELECT line FROM batch_lines")}
    finally:
        connection.close()


@pytest.mark.timeout(120)
async def test_a_killed_run_is_taken_up_where_it_was(tmp_path: Path) -> None:
    async with rigged(tmp_path, lease_s=1) as rig:
        rig.clock.now = time.time()
        batch = await rig.submit(input_file(*(str(n) for n in range(1, LINES + 1))))
        for kill_after in (20, 60, 100):
            child = start(tmp_path)
            try:
                while len(counted(tmp_path)) < kill_after:
                    assert child.poll() is None
                    await asyncio.sleep(0.01)
            finally:
                child.kill()
                child.wait()
            done = counted(tmp_path)
            assert done
        ran_before = (tmp_path / "ran").read_text().split()
        rig.clock.now = time.time() + 2
        runner = rig.runner()
        batch = await rig.ended(batch)
        output, error = await rig.results(batch)
        await runner.close()
    assert (batch.status, batch.completed, error) == ("completed", LINES, [])
    assert Counter(names(output)) == Counter(str(n) for n in range(1, LINES + 1))
    # What counted at the last kill was not repeated, and each kill cost at most what was in flight.
    assert not {int(say) for say in rig.ran} & done
    assert len(ran_before) - len(set(ran_before)) <= 2 * CONCURRENCY
    assert len(ran_before) <= len(done) + 3 * CONCURRENCY
