"""The interface between a request and whatever keeps the limits."""

from typing import Protocol

from backends.types import Usage
from gateway.call import Call
from gateway.identity import Identity


class Reservation(Protocol):
    """What a request has taken from its key's limits while it runs."""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The `x-ratelimit-*` headers of the limits that the key has, as of the reservation; the list is the caller's."""
        ...

    async def settle(self, usage: Usage | None, cost_usd: float) -> None:
        """Charge what was used and give back the rest. Called exactly once, however the request ends. Never raises.

        Args:
            usage: what was computed, also of an answer that broke off; None when nothing was.
            cost_usd: what that costs.
        """
        ...


class Limiter(Protocol):
    """Keeps the limits of all keys."""

    async def reserve(self, identity: Identity, call: Call) -> Reservation:
        """Take what a call needs, all or nothing.

        Raises:
            RateLimited: a limit of the key is reached.
        """
        ...

    async def close(self) -> None:
        """Write down what must last. May be called twice."""
        ...


class _Unlimited:
    """The reservation of everybody without limits."""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """None at all."""
        return []

    async def settle(self, usage: Usage | None, cost_usd: float) -> None:
        """Nothing was taken, so nothing is to be done."""


UNLIMITED: Reservation = _Unlimited()
