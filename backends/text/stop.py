"""Stop strings over a stream of text pieces.

Held back is only the longest suffix that may still become a stop string, so at most the longest stop string less one character.
The earliest match wins: the one that is complete first, and of several that end together the longest. Each stop string is a
Knuth-Morris-Pratt automaton, so the work is linear in the text whatever the strings are. Knows characters, not tokens.
"""

from collections.abc import Sequence

from backends.errors import Rejected


class _Automaton:
    """Finds one string in a stream; `state` is how many of its characters the text ends with."""

    __slots__ = ("_failure", "_pattern", "state")

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._failure = _failure_table(pattern)
        self.state = 0

    def scan(self, text: str) -> int:
        """Return the position in `text` just after the first match, or -1."""
        pattern, failure, state, at, size = self._pattern, self._failure, self.state, 0, len(text)
        while at < size:
            if state == 0:
                at = text.find(pattern[0], at)
                if at < 0:
                    break
            char = text[at]
            while state and pattern[state] != char:
                state = failure[state]
            if pattern[state] == char:
                state += 1
            at += 1
            if state == len(pattern):
                return at
        self.state = state
        return -1


def _failure_table(pattern: str) -> list[int]:
    """For each length of a matched part: the length of its longest proper prefix that is also its suffix."""
    table = [0] * (len(pattern) + 1)
    state = 0
    for i in range(1, len(pattern)):
        while state and pattern[state] != pattern[i]:
            state = table[state]
        if pattern[state] == pattern[i]:
            state += 1
        table[i + 1] = state
    return table


class StopMatcher:
    """Watches one sequence for any of some stop strings.

    Raises:
        Rejected: a stop string is empty; it would match everywhere.
    """

    __slots__ = ("_automata", "_held", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise Rejected("a stop string must not be empty", param="stop")
        self._stops = tuple(dict.fromkeys(stops))
        self._automata = tuple(_Automaton(stop) for stop in self._stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Take text; return what may be shown now and the stop string that was found, if one was.

        After a match nothing may be pushed any more: the stop string and all after it are gone.
        """
        best_end, best_stop = -1, ""
        for stop, automaton in zip(self._stops, self._automata, strict=True):
            end = automaton.scan(text)
            if end >= 0 and (best_end < 0 or (end, -len(stop)) < (best_end, -len(best_stop))):
                best_end, best_stop = end, stop
        if best_end >= 0:
            seen, self._held = self._held + text[:best_end], ""
            return seen[: len(seen) - len(best_stop)], best_stop
        seen = self._held + text
        hold = max((automaton.state for automaton in self._automata), default=0)
        cut = len(seen) - hold
        self._held = seen[cut:]
        return seen[:cut], None

    def flush(self) -> str:
        """End the text: what was held back is shown after all."""
        held, self._held = self._held, ""
        for automaton in self._automata:
            automaton.state = 0
        return held
