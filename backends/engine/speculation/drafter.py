"""When to guess, and how far: as long as it pays.

Each guessed token costs some of the time of a step, each right one saves a step. Both go into an account. While the account
is not overdrawn, the sequence is guessed for; afterwards it is left alone for a number of steps that doubles with each failure,
and then tried again with a small credit. The account has a ceiling, so good times do not pay for long bad ones: whatever the
text, the loss is at most `START`, plus `RETRY` and the cost of one draft for each pause, and the pauses grow.
"""

from collections.abc import Sequence

from backends.engine.speculation.lookup import Lookup

START, RETRY, CEILING = 2.0, 0.5, 4.0  # in decoding steps
SHORTEST_PAUSE, LONGEST_PAUSE = 32, 1024  # in decoding steps
_FIRST_LENGTH = 4


class Drafter:
    """Guesses for one sequence.

    Args:
        end_tokens: tokens that end the answer. Never guessed: the end is chosen, not checked.
        most: the longest draft.
        cost: what checking one more token takes of the time of a decoding step with one token; below 1.
    """

    __slots__ = ("_account", "_cost", "_end_tokens", "_length", "_lookup", "_most", "_next_pause", "_pause")

    def __init__(self, end_tokens: frozenset[int], most: int = 8, cost: float = 0.25) -> None:
        self._end_tokens, self._most, self._cost = end_tokens, most, cost
        self._lookup = Lookup()
        self._account = START
        self._length = min(_FIRST_LENGTH, most)
        self._pause, self._next_pause = 0, SHORTEST_PAUSE

    def propose(self, tokens: list[int], room: int, forced: Sequence[int] = ()) -> list[int]:
        """Guess the tokens of the next step. Call it once a step.

        Args:
            tokens: the text so far, prompt and answer; it only ever grows.
            room: the most tokens that may be guessed.
            forced: what must follow, if that is known: a guess that cannot be wrong, made also in a pause.
        """
        if forced:
            return self._cut(forced, min(room, self._most))
        if self._pause:
            self._pause -= 1
            return []
        length = min(room, self._length)
        return self._cut(self._lookup.find(tokens, length), length) if length > 0 else []

    def learn(self, drafted: int, accepted: int) -> None:
        """Hear how a draft went: of `drafted` tokens (at least 1) the first `accepted` were right."""
        self._account = min(CEILING, self._account + accepted - self._cost * drafted)
        if accepted == drafted:
            self._length = min(self._most, max(2 * drafted, self._length))
        else:
            self._length = min(self._most, max(2, accepted + 1))
        if self._account == CEILING:
            self._next_pause = SHORTEST_PAUSE
        elif self._account < 0:
            self._account = RETRY
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE)

    def _cut(self, draft: Sequence[int], most: int) -> list[int]:
        end = next((place for place, token in enumerate(draft) if token in self._end_tokens), len(draft))
        return list(draft[: min(end, most)])
