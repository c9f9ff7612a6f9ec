"""Keeps the log probabilities of tokens beside the text they became.

A token's log probability is released together with the last character that the token touches, so one that is held back (half a
character, perhaps a stop string, perhaps a tool call) waits for its text, and one whose text is never shown is dropped.
Positions count characters of the decoded answer. Knows neither why text is held back nor what it says.
"""

from collections import deque
from collections.abc import Iterable

from backends.types import TokenLogprob


class _Entry:
    __slots__ = ("end", "logprob", "start", "visible")

    def __init__(self, start: int, end: int, logprob: TokenLogprob) -> None:
        self.start = start
        self.end = end
        self.logprob = logprob
        self.visible = start == end


class LogprobQueue:
    """The tokens of one answer whose text is not decided yet, in order."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()

    def add(self, start: int, end: int, logprob: TokenLogprob) -> None:
        """Append a token that touches the characters from `start` up to `end`, not including it."""
        self._entries.append(_Entry(start, end, logprob))

    def release(self, settled: int, shown: Iterable[tuple[int, int]]) -> list[TokenLogprob]:
        """Take the tokens that end at or before `settled` and of which some character was shown, now or earlier.

        Args:
            settled: everything before this position has been shown or dropped.
            shown: the ranges that were shown since the last call, ascending.
        """
        for start, end in shown:
            for entry in self._entries:
                if entry.start >= end:
                    break
                entry.visible = entry.visible or entry.end > start
        released = []
        while self._entries and self._entries[0].end <= settled:
            entry = self._entries.popleft()
            if entry.visible:
                released.append(entry.logprob)
        return released

    def cut(self) -> list[TokenLogprob]:
        """The text ends here: take the tokens of which some character was shown, drop the others."""
        released = [entry.logprob for entry in self._entries if entry.visible and entry.start < entry.end]
        self._entries.clear()
        return released
