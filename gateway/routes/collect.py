"""Plays a backend iterator to its end, for clients that want the whole answer at once."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from backends.types import Delta
from gateway.telemetry.observation import Observation
from gateway.translate.answer import Answer


async def collect(source: AsyncGenerator[Delta], size: int, observation: Observation) -> Answer:
    """Gather all deltas; closes `source` however this ends.

    Args:
        size: the number of choices.

    Raises:
        BackendError: whatever the backend raises, at any point.
    """
    answer = Answer(size)
    async with aclosing(source) as deltas:
        async for delta in deltas:
            observation.tokens(delta.tokens)
            answer.add(delta)
    observation.finish(answer.usage, answer.finish_of(0))
    return answer
