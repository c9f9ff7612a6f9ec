"""Runs one line, again and again while it is not its fault that it fails."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from itertools import count

from gateway.batches.batch import Batch
from gateway.batches.config import BatchesConfig
from gateway.batches.ledger import Result
from gateway.batches.lines import Line, answered, new_request_id, unanswered
from gateway.identity import Identity

logger = logging.getLogger(__name__)

RunLine = Callable[[Identity, str, bytes, str], Awaitable[tuple[int, bytes]]]
"""Answers a request: identity, path of the endpoint, JSON body, request id; returns the status and the JSON body."""

Identify = Callable[[Identity], Identity | None]
"""What the key behind an identity may do now; None when it is no longer valid."""

_MAX_WAIT_S = 60.0


def backoff_s(attempt: int) -> float:
    """Seconds to wait after a failed attempt, counted from 1: doubling up to a minute, and spread, so that lines part."""
    return min(_MAX_WAIT_S, 2.0 ** min(attempt - 1, 10)) * random.uniform(0.5, 1.0)


class Attempts:
    """Runs lines of all batches of one process.

    Args:
        run_line: answers a request.
        identify: asked before every attempt, since keys are revoked meanwhile.
        delay_s: seconds after attempt number so-and-so.
    """

    def __init__(
        self, run_line: RunLine, config: BatchesConfig, *, identify: Identify, delay_s: Callable[[int], float] = backoff_s
    ) -> None:
        self._run_line = run_line
        self._config = config
        self._identify = identify
        self._delay_s = delay_s
        # First come, first served: batches take turns, whatever their size.
        self._slots = asyncio.Semaphore(config.concurrency)

    async def result(self, batch: Batch, line: Line, stop: asyncio.Event) -> Result | None:
        """Run a line to its result; None when `stop` was set before an attempt had begun that leads to one."""
        for attempt in count(1):
            async with self._slots:
                if stop.is_set():
                    return None
                result, is_worth_another = await self._try(batch, line)
            if not is_worth_another or attempt >= self._config.max_attempts:
                return result
            if await happens_within(stop, self._delay_s(attempt)):
                return None
        raise AssertionError("counting never ends")

    async def _try(self, batch: Batch, line: Line) -> tuple[Result, bool]:
        """One attempt: its result, and whether another one may go better."""
        identity, request_id = self._identify(batch.identity), new_request_id()
        if identity is None:
            return _failed(line, "invalid_api_key", "The API key that made this batch is no longer valid."), False
        try:
            async with asyncio.timeout(self._config.line_timeout_s):
                status, body = await self._run_line(identity, batch.endpoint, line.body, request_id)
            data = answered(line.custom_id, status, body, request_id)
        except TimeoutError:
            text = f"The request took longer than {self._config.line_timeout_s:g} s."
            return _failed(line, "request_timeout", text), False
        except Exception:
            logger.exception("a line of a batch failed because of a bug", extra={"request_id": request_id})
            text = f"The server had an internal error. Quote the request id {request_id} when you report it."
            return _failed(line, "internal_error", text), True
        return Result(line.number, data, status != 200), status == 429 or status >= 500


def _failed(line: Line, code: str, message: str) -> Result:
    return Result(line.number, unanswered(line.custom_id, code, message), True)


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not longer than that; says whether it has happened."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
