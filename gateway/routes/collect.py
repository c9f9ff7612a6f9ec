"""Plays a backend iterator to its end, for clients that want the whole answer at once."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from backends.types import Delta
from gateway.translate.answer import Answer


async def collect(source: AsyncGenerator[Delta], size: int, on_tokens: Callable[[int], None]) -> Answer:
    """Gather all deltas; closes `source` however this ends.

    Args:
        size: the number of choices.
        on_tokens: told how many tokens there are so far.

    Raises:
        BackendError: whatever the backend raises, at any point.
    """
    answer = Answer(size)
    tokens = 0
    async with aclosing(source) as deltas:
        async for delta in deltas:
            if delta.tokens:
                tokens += delta.tokens
                on_tokens(tokens)
            answer.add(delta)
    return answer
