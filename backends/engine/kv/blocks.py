"""The blocks of one group: why each of them is not free, and what is thrown away when more are needed.

Plain Python; where a block's keys and values lie is the torch pool's business. Idle blocks whose content has a name stay
until their place is needed: least recently used first. Who lets go of a sequence does so from its end, so that tails go before
the beginnings that others may share.
"""

from collections.abc import Iterable
from enum import Enum, auto


class Reason(Enum):
    """Why a block is where it is. Each has exactly one reason."""

    FREE = auto()  # nothing worth keeping is in it
    CACHED = auto()  # nobody holds it, but its content has a name: may be shared, may be evicted
    RUNNING = auto()  # sequences hold it


class BlockPool:
    """Reference-counted blocks, numbered 0 to `size - 1`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.evictions = 0
        self._references = [0] * size
        self._reasons = [Reason.FREE] * size
        self._counts = dict.fromkeys(Reason, 0) | {Reason.FREE: size}
        self._free = list(range(size - 1, -1, -1))
        self._idle: dict[int, None] = {}  # the cached blocks, in the order of last use
        self._names: list[bytes | None] = [None] * size
        self._named: dict[bytes, int] = {}

    @property
    def available(self) -> int:
        """How many blocks `take` could hand out."""
        return len(self._free) + len(self._idle)

    def count(self, reason: Reason) -> int:
        """How many blocks have this reason."""
        return self._counts[reason]

    def reason(self, block: int) -> Reason:
        """Why a block is where it is."""
        return self._reasons[block]

    def find(self, name: bytes) -> int | None:
        """The block with this name, held by somebody or not."""
        return self._named.get(name)

    def take(self, count: int) -> list[int]:
        """Hand out `count` blocks with one reference each; the caller has checked that so many are available."""
        assert count <= self.available, f"{count} blocks wanted, {self.available} available"
        taken = []
        for _ in range(count):
            block = self._free.pop() if self._free else self._evict()
            self._references[block] = 1
            self._move(block, Reason.RUNNING)
            taken.append(block)
        return taken

    def share(self, block: int) -> None:
        """Add a reference to a block that is held or cached."""
        if not self._references[block]:
            assert self._reasons[block] is Reason.CACHED, f"block {block} holds nothing that could be shared"
            del self._idle[block]
            self._move(block, Reason.RUNNING)
        self._references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Drop one reference of each, in this order: of those that become idle, the first is evicted first."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} is released more often than held"
            self._references[block] -= 1
            if self._references[block]:
                continue
            if self._names[block] is None:
                self._free.append(block)
                self._move(block, Reason.FREE)
            else:
                self._idle[block] = None
                self._move(block, Reason.CACHED)

    def enter(self, block: int, name: bytes) -> None:
        """Let a held block, complete now, be found by `name`. Nothing happens when another one is, or this one has a name."""
        assert self._references[block] > 0, f"block {block} is named but nobody holds it"
        if name not in self._named and self._names[block] is None:
            self._named[name] = block
            self._names[block] = name

    def forget(self, name: bytes) -> None:
        """Let nobody find this name any more. Those who hold the block keep it."""
        block = self._named.pop(name, None)
        if block is None:
            return
        self._names[block] = None
        if not self._references[block]:
            del self._idle[block]
            self._free.append(block)
            self._move(block, Reason.FREE)

    def check_integrity(self, holders: Iterable[Iterable[int]]) -> None:
        """Assert that the books agree with each other and with what all holders together say they hold."""
        counted = [0] * self.size
        for blocks in holders:
            for block in blocks:
                counted[block] += 1
        assert counted == self._references, "references differ from what the holders hold"
        for block, (references, name) in enumerate(zip(counted, self._names, strict=True)):
            idle = Reason.FREE if name is None else Reason.CACHED
            assert self._reasons[block] is (Reason.RUNNING if references else idle), f"block {block} has the wrong reason"
            assert name is None or self._named[name] == block, f"block {block} is not found by its name"
        for reason, count in self._counts.items():
            assert count == self._reasons.count(reason), f"the count of {reason.name} is wrong"
        assert sum(self._counts.values()) == self.size
        assert len(self._named) == self.size - self._names.count(None), "a name leads to a block that does not bear it"
        assert sorted(self._free) == self._with(Reason.FREE), "the free list differs"
        assert sorted(self._idle) == self._with(Reason.CACHED), "the list of cached blocks differs"

    def _with(self, reason: Reason) -> list[int]:
        return [block for block, other in enumerate(self._reasons) if other is reason]

    def _move(self, block: int, reason: Reason) -> None:
        self._counts[self._reasons[block]] -= 1
        self._counts[reason] += 1
        self._reasons[block] = reason

    def _evict(self) -> int:
        block = next(iter(self._idle))
        del self._idle[block]
        name = self._names[block]
        assert name is not None
        del self._named[name]
        self._names[block] = None
        self.evictions += 1
        return block
