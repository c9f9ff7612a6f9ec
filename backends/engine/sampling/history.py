"""What the penalties of one sequence know: its tokens, and how often each was generated.

It is a function of the tokens that were accepted, and of nothing else. A token that is only guessed is never put in, but may be
looked at as if it were, so there is nothing to take back when the guess turns out wrong.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Counts = npt.NDArray[np.float32]


class History:
    """Distinct token ids with the number of times each was generated.

    Args:
        prompt: tokens to know from the start, with a count of zero.
    """

    __slots__ = ("_counts", "_ids", "_places")

    def __init__(self, prompt: Sequence[int] = ()) -> None:
        self._places = {token: place for place, token in enumerate(dict.fromkeys(prompt))}
        self._ids: Ids = np.zeros(len(self._places) + 64, np.int64)
        self._ids[: len(self._places)] = list(self._places)
        self._counts: Counts = np.zeros(len(self._ids), np.float32)

    def accept(self, token: int) -> None:
        """Count a generated token."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[place] = token
        self._counts[place] += 1

    def table(self, ahead: Sequence[int] = ()) -> tuple[Ids, Counts]:
        """List the ids, each once, and their counts, as if the tokens of `ahead` had been generated too.

        Valid until the next `accept`, and not to be written to.
        """
        size = len(self._places)
        ids, counts = self._ids[:size], self._counts[:size]
        if not ahead:
            return ids, counts
        new = {token: size + i for i, token in enumerate(t for t in dict.fromkeys(ahead) if t not in self._places)}
        ids = np.concatenate([ids, np.fromiter(new, np.int64, len(new))])
        counts = np.concatenate([counts, np.zeros(len(new), np.float32)])
        for token in ahead:
            counts[self._places.get(token, new.get(token))] += 1
        return ids, counts
