"""One legacy completion request with several prompts, as one stream of deltas.

Each prompt is a request of its own to the backend. A few run at a time, so that one client's list of prompts cannot fill a
backend's queue by itself. Should a later prompt be refused, the whole request fails, as it does at OpenAI.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec

from backends.types import Delta, GenerateRequest, Usage

PARALLEL_PROMPTS = 8
_BUFFERED_DELTAS = 64

Generate = Callable[[GenerateRequest], AsyncGenerator[Delta]]


def generate_all(generate: Generate, requests: Sequence[GenerateRequest]) -> AsyncGenerator[Delta]:
    """Answer all requests; choice `c` of request `p` becomes choice `p * n + c`. Keeps the contract of `Backend.generate`."""
    return generate(requests[0]) if len(requests) == 1 else _merge(generate, requests)


async def _merge(generate: Generate, requests: Sequence[GenerateRequest]) -> AsyncGenerator[Delta]:
    queue: asyncio.Queue[Delta | Exception] = asyncio.Queue(_BUFFERED_DELTAS)
    slots = asyncio.Semaphore(PARALLEL_PROMPTS)
    tasks = [asyncio.create_task(_pump(generate, request, i, slots, queue)) for i, request in enumerate(requests)]
    left, prompt_tokens, completion_tokens, cached_tokens = len(tasks), 0, 0, 0
    try:
        while left:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item.usage is not None:
                left -= 1
                prompt_tokens += item.usage.prompt_tokens
                completion_tokens += item.usage.completion_tokens
                cached_tokens += item.usage.cached_tokens
                total = None if left else Usage(prompt_tokens, completion_tokens, cached_tokens)
                item = msgspec.structs.replace(item, usage=total)
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _pump(
    generate: Generate,
    request: GenerateRequest,
    position: int,
    slots: asyncio.Semaphore,
    queue: asyncio.Queue[Delta | Exception],
) -> None:
    try:
        async with slots, aclosing(generate(request)) as deltas:
            async for delta in deltas:
                await queue.put(msgspec.structs.replace(delta, index=position * request.n + delta.index))
    except Exception as error:
        await queue.put(error)
