"""Finished sequences that stay in the KV cache for whoever comes next with the same beginning.

Least recently used ones go first. Nothing here touches llama.cpp: the scheduler does, after asking. Lookup compares token
lists directly (slices compare at memcpy speed, so a few dozen residents cost microseconds) instead of keeping a radix tree in
step with evictions.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False, frozen=True)
class Resident:
    """A finished sequence: `tokens[i]` is in cell `cells[i]` of sequence id `slot`."""

    slot: int
    tenant: str
    tokens: list[int]
    cells: list[int]


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
    """The residents, in order of use, at most `capacity` of them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._residents: OrderedDict[int, Resident] = OrderedDict()

    def __len__(self) -> int:
        return len(self._residents)

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._residents.values())

    def longest(self, tenant: str, tokens: list[int]) -> tuple[Resident | None, int]:
        """Find the resident of this tenant that shares most leading tokens, and how many."""
        best, most = None, 0
        for resident in self._residents.values():
            if resident.tenant != tenant or len(resident.tokens) <= most or resident.tokens[: most + 1] != tokens[: most + 1]:
                continue
            best, most = resident, shared_prefix(resident.tokens, tokens)
        return best, most

    def add(self, resident: Resident) -> None:
        """Keep it as the most recently used; the caller has made room."""
        self._residents[resident.slot] = resident

    def touch(self, resident: Resident) -> None:
        """Mark it as used now."""
        self._residents.move_to_end(resident.slot)

    def remove(self, resident: Resident) -> None:
        """Forget it."""
        del self._residents[resident.slot]

    def oldest(self, keep: Resident | None = None) -> Resident | None:
        """Name the least recently used resident other than `keep`."""
        return next((resident for resident in self._residents.values() if resident is not keep), None)

    def covered_by(self, tenant: str, tokens: list[int]) -> list[Resident]:
        """List the residents whose tokens are all a prefix of `tokens`: they would add nothing beside it."""
        return [r for r in self._residents.values() if r.tenant == tenant and r.tokens == tokens[: len(r.tokens)]]
