"""Values as sealed segments. Large ones are packed in a thread, because the event loop has others to serve."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from gateway.context.codec import Damaged, seal, unseal

T = TypeVar("T")
S = TypeVar("S")

INLINE_BYTES = 64 << 10
"""Below this, packing takes less time than handing it to a thread and back."""

MAX_UNPACKED_BYTES = 96 << 20
"""More than the largest bound that can be configured, with what packing adds. Not the configured bound: a log that was written
before that was lowered can still be read."""

_encode = msgspec.msgpack.Encoder().encode


async def pack(value: object, size: int) -> bytes:
    """Seal a value of msgpack types of about `size` bytes."""
    return await _offload(size, lambda: seal(_encode(value)))


async def unpack(stored: Sequence[bytes], decoder: "msgspec.msgpack.Decoder[T]") -> list[T]:
    """Open sealed values.

    Raises:
        Damaged: they are not what was sealed, or more than 96 MiB together.
    """
    # How much it will be is known only inside; a sealed megabyte of text is three or four.
    return await _offload(sum(map(len, stored)) * 4, lambda: _unpack(stored, decoder))


def _unpack(stored: Sequence[bytes], decoder: "msgspec.msgpack.Decoder[T]") -> list[T]:
    values = []
    left = MAX_UNPACKED_BYTES
    for segment in stored:
        content = unseal(segment, limit=left)
        left -= len(content)
        try:
            values.append(decoder.decode(content))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Damaged(f"not what was sealed: {error}") from None
    return values


async def _offload(size: int, work: Callable[[], S]) -> S:
    return work() if size < INLINE_BYTES else await asyncio.to_thread(work)
