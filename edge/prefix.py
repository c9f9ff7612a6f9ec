"""What finished sequences leave behind for whoever comes next with the same beginning: their keys and values, in host memory.

They are copied out of the KV cache because attention walks over every used cell: residents that stay inside slow down each
step of everybody (see NOTES.md). Copying back costs a few microseconds per token, computing again milliseconds. Least
recently used ones go first. Lookup compares token lists directly (slices compare at memcpy speed) instead of keeping a radix
tree in step with evictions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False, frozen=True)
class Snapshot:
    """Keys and values of `tokens`, as `KvMemory.save` returned them: `data`, of `size` bytes."""

    tenant: str
    tokens: list[int]
    data: Any
    size: int


def shared_prefix(a: list[int], b: list[int]) -> int:
    """Count the leading tokens that two lists have in common, by bisection over slice comparisons."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


class PrefixCache:
    """The snapshots in order of use, at most `capacity` bytes of them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._snapshots: dict[int, Snapshot] = {}  # by id(): insertion order is the order of use

    def __len__(self) -> int:
        return len(self._snapshots)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self._snapshots.values())

    def longest(self, tenant: str, tokens: list[int]) -> tuple[Snapshot | None, int]:
        """Find the snapshot of this tenant that shares most leading tokens, and how many."""
        best, most = None, 0
        for snapshot in self._snapshots.values():
            if snapshot.tenant == tenant and snapshot.tokens[: most + 1] == tokens[: most + 1] and len(tokens) > most:
                best, most = snapshot, shared_prefix(snapshot.tokens, tokens)
        return best, most

    def add(self, snapshot: Snapshot) -> None:
        """Keep it as the most recently used; older ones make room, and those it contains are superfluous."""
        for other in [s for s in self if s.tenant == snapshot.tenant and s.tokens == snapshot.tokens[: len(s.tokens)]]:
            self._remove(other)
        self._snapshots[id(snapshot)] = snapshot
        self.size += snapshot.size
        while self.size > self.capacity:
            self._remove(next(iter(self)))

    def touch(self, snapshot: Snapshot) -> None:
        """Mark it as used now."""
        self._snapshots[id(snapshot)] = self._snapshots.pop(id(snapshot))

    def clear(self) -> None:
        """Forget everything."""
        self._snapshots.clear()
        self.size = 0

    def _remove(self, snapshot: Snapshot) -> None:
        del self._snapshots[id(snapshot)]
        self.size -= snapshot.size
