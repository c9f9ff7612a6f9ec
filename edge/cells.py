"""Who holds which KV cell.

One llama.cpp context has a fixed number of KV cells. A position of a sequence occupies one; sequences that share a prefix
share its cells, and a cell is free again when nobody holds it. llama.cpp keeps the same books inside but does not show them,
and learning that it is full from a failed decode is late: this mirror lets admission and preemption be decided beforehand.
Cell ids here are names only; llama.cpp places the data as it likes.
"""

from collections.abc import Iterable


class CellPool:
    """Reference-counted cells. `size` is the number of KV cells of the context."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._references = [0] * size
        self._free = list(range(size - 1, -1, -1))

    @property
    def free(self) -> int:
        """How many cells nobody holds."""
        return len(self._free)

    @property
    def used(self) -> int:
        """How many cells somebody holds."""
        return self.size - len(self._free)

    def take(self, count: int) -> list[int]:
        """Hand out `count` free cells with one reference each; the caller has checked that there are enough."""
        assert count <= len(self._free), f"{count} cells wanted, {len(self._free)} free"
        if not count:
            return []
        cells = self._free[-count:]
        del self._free[-count:]
        references = self._references
        for cell in cells:
            references[cell] = 1
        return cells

    def share(self, cells: Iterable[int]) -> None:
        """Add one reference to each of the cells."""
        references = self._references
        for cell in cells:
            references[cell] += 1

    def release(self, cells: Iterable[int]) -> None:
        """Drop one reference of each; a cell without references is free."""
        references, free = self._references, self._free
        for cell in cells:
            references[cell] -= 1
            if not references[cell]:
                free.append(cell)

    def check_integrity(self, holders: Iterable[Iterable[int]]) -> None:
        """Assert that the books agree with what all holders together say they hold."""
        counted = [0] * self.size
        for cells in holders:
            for cell in cells:
                counted[cell] += 1
        assert counted == self._references, "references differ from what the holders hold"
        assert sorted(self._free) == [cell for cell, n in enumerate(counted) if not n], "the free list differs"
