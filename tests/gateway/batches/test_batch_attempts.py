"""One line: when it may begin, and how long it waits before it is tried again."""

import asyncio
import json

from gateway.batches.attempts import Attempts, backoff_s
from gateway.batches.batch import new_batch
from gateway.batches.config import BatchesConfig
from gateway.batches.lines import Line
from gateway.identity import Identity
from gateway.schema.batches import BatchRequest
from tests.gateway.batches.rig import ANN, CHAT

BATCH = new_batch(ANN, BatchRequest(input_file_id="file-1", endpoint=CHAT, completion_window="24h"), 1)


def test_the_waits_between_attempts_grow_to_a_minute() -> None:
    waits = [[backoff_s(attempt) for _ in range(100)] for attempt in range(1, 100)]
    assert all(0.5 <= wait <= 1 for wait in waits[0])
    assert all(1 <= wait <= 2 for wait in waits[1])
    assert all(30 <= wait <= 60 for wait in waits[-1])
    assert len(set(waits[-1])) > 1


async def test_a_line_that_waits_for_its_turn_is_not_run_after_the_stop() -> None:
    begun, held, stop, ran = asyncio.Event(), asyncio.Event(), asyncio.Event(), []

    async def run_line(identity: Identity, endpoint: str, body: bytes, request_id: str) -> tuple[int, bytes]:
        ran.append(json.loads(body))
        begun.set()
        await held.wait()
        return 200, body

    attempts = Attempts(run_line, BatchesConfig(concurrency=1), identify=lambda identity: identity)
    first, second = [asyncio.create_task(attempts.result(BATCH, Line(n, str(n), b"%d" % n), stop)) for n in (1, 2)]
    await begun.wait()
    stop.set()
    held.set()
    result = await first
    assert result is not None
    assert not result.failed
    assert await second is None
    assert ran == [1]
