"""Lets one of several equal requests work while the others wait for its result."""

import asyncio
from collections.abc import Callable
from time import monotonic


class Flights:
    """The keys that are being worked on. Who gets True from `enter` works, and calls `leave` however that ends.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._landings: dict[bytes, asyncio.Future[bool]] = {}

    def __len__(self) -> int:
        return len(self._landings)

    def enter(self, key: bytes) -> bool:
        """Start to work, if nobody else does."""
        if key in self._landings:
            return False
        self._landings[key] = asyncio.get_running_loop().create_future()
        return True

    def leave(self, key: bytes, *, look_again: bool) -> None:
        """End the work and wake everybody who waits for it.

        Args:
            look_again: False when it turned out that there will never be a result to share.
        """
        self._landings.pop(key).set_result(look_again)

    async def wait(self, key: bytes, deadline: float) -> bool:
        """Wait until nobody works on a key; says whether it is worth while to look for the result.

        Args:
            deadline: of the clock; then the answer is False.
        """
        landing = self._landings.get(key)
        if landing is None:
            return True
        try:
            async with asyncio.timeout(deadline - self._clock()):
                return await asyncio.shield(landing)
        except TimeoutError:
            return False
