"""Block tables as tensors, one row for each running sequence, written only where they changed."""

import torch

from backends.engine.scheduling.sequence import Sequence


class Tables:
    """The tables of all groups.

    Args:
        rows: sequences that run at once.
        entries: blocks of the longest sequence.
        groups: how many there are.
    """

    def __init__(self, rows: int, entries: int, groups: int) -> None:
        self.tensors = [torch.zeros(rows, entries, dtype=torch.int64) for _ in range(groups)]
        self._arrays = [tensor.numpy() for tensor in self.tensors]
        self._free = list(range(rows))
        self._rows: dict[Sequence, tuple[int, int]] = {}  # its row, and for which of its admissions
        self._known: dict[Sequence, int] = {}

    def row(self, sequence: Sequence, block: int) -> int:
        """The row of a sequence, up to date. Only for those that run."""
        row, admission = self._rows.get(sequence, (-1, -1))
        if row < 0:
            row = self._free.pop()
        known = self._known.get(sequence, 0) if admission == sequence.admissions else 0
        self._rows[sequence] = row, sequence.admissions
        # Blocks that hold only guesses may have been given back and replaced: those before the newest token never are.
        begin, end = min(known, sequence.num_computed // block), sequence.holding.num_blocks
        for array, table in zip(self._arrays, sequence.holding.tables, strict=True):
            array[row, begin:end] = table[begin:]
        self._known[sequence] = end
        return row

    def forget_all_but(self, running: set[Sequence]) -> None:
        """Free the rows of sequences that do not run any more."""
        for sequence in self._rows.keys() - running:
            self._free.append(self._rows.pop(sequence)[0])
            self._known.pop(sequence, None)
