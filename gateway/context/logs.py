"""What a store must be able to do: keep short append-only logs of bytes under a key, each with an expiry.

A conversation is a log that grows, a stored response and a cached answer are logs that are written once. A store neither knows
tenants nor what the bytes mean. Two implementations pass one contract suite: `sqlite_logs` and `redis_logs`.
"""

from typing import NamedTuple, Protocol


class Segment(NamedTuple):
    """What one write adds: `data` as it is stored (empty adds nothing but a version), `items` and `size` (bytes) as they count
    against the bounds."""

    data: bytes
    items: int
    size: int


class Bounds(NamedTuple):
    """The most that all segments of one log may count together."""

    items: int
    size: int


class Log(NamedTuple):
    """One log: the segments in the order of writing, and Unix times. Every write raises `version` by one, from 0."""

    version: int
    segments: tuple[bytes, ...]
    created_at: float
    expires_at: float


class LogStore(Protocol):
    """Keeps logs. All calls raise `gateway.store.errors.StoreDown` when the store does not answer; then nothing was written, or
    all of it was."""

    async def read(self, key: bytes, *, refresh_s: float | None = None) -> Log | None:
        """Return a log that has not expired.

        Args:
            refresh_s: seconds from now until it expires, from this read on; None leaves the expiry alone.
        """
        ...

    async def append(self, key: bytes, segment: Segment, *, expected: int | None, bounds: Bounds, ttl_s: float) -> int:
        """Add a segment to a log, which begins empty with version 0, and return the new version. Atomic.

        Args:
            expected: the version that the log must have; None for any.
            ttl_s: seconds from now until the log expires.

        Raises:
            Conflict: it has another version.
            TooLarge: the log would exceed its bounds.
        """
        ...

    async def put(self, key: bytes, segment: Segment, *, ttl_s: float) -> None:
        """Replace a log by one segment, as version 1. Atomic."""
        ...

    async def delete(self, key: bytes) -> bool:
        """Forget a log; says whether there was one."""
        ...
