"""Sequences in order of rank."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import pairwise

from backends.engine.scheduling.sequence import Sequence


class Queue:
    """A list that is always sorted: the most urgent sequence first."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def __getitem__(self, position: int) -> Sequence:
        return self._sequences[position]

    def add(self, sequence: Sequence) -> None:
        """Put a sequence in its place."""
        insort(self._sequences, sequence, key=_rank)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is in the queue."""
        position = bisect_left(self._sequences, sequence.rank, key=_rank)
        assert self._sequences[position] is sequence
        del self._sequences[position]

    def pop_last(self) -> Sequence:
        """Take out the least urgent sequence."""
        return self._sequences.pop()

    def hurry(self, sequence: Sequence, due: float) -> None:
        """Make a sequence of the queue at least as urgent as `due`."""
        if due < sequence.due:
            self.remove(sequence)
            sequence.due = due
            self.add(sequence)

    def check_integrity(self) -> None:
        """Assert that the order is right and nobody is queued who was let go."""
        assert all(a.rank < b.rank for a, b in pairwise(self._sequences)), "a queue is out of order"
        assert not any(sequence.finished for sequence in self._sequences), "a sequence was let go but is still queued"


def _rank(sequence: Sequence) -> tuple[float, int]:
    return sequence.rank
