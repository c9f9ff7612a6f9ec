"""Prompt lookup: what followed the last time that the text ended like this?

Answers repeat: code that is edited, documents that are quoted, names, JSON keys. The longest end of the text that occurred
before is found, and what followed it there is the guess. An end of two tokens leads to its newest place through a dictionary,
from there a chain leads to the places before; each is compared token by token. The chain takes 4 bytes for each token.
Source: Saxena 2023, "Prompt Lookup Decoding".
"""

from array import array

_SHORTEST = 2
_LONGEST = 8
_PLACES = 16  # compared at most, the newest first
_AT_ONCE = 4096  # tokens taken into the index by one call, about 1 ms: a long prompt must not stop a step
_PAIRS = 65_536  # distinct pairs remembered; then it forgets them all and begins anew


class Lookup:
    """The index of one sequence's text, which only ever grows."""

    __slots__ = ("_before", "_newest")

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}  # pair of tokens: where its second token stood last
        self._before = array("i", [-1])  # for each token of the text, where the pair that ends with it stood before

    def find(self, tokens: list[int], most: int) -> list[int]:
        """Guess up to `most` tokens that follow. Empty when the text ends in nothing known.

        Of several places the one with the longest common end counts, and of these the newest.

        Args:
            tokens: prompt and answer so far; must begin with what earlier calls were given.
        """
        self._take(tokens)
        if len(tokens) < _SHORTEST:
            return []
        place, best, length = self._newest.get(_pair(tokens, len(tokens) - 1), -1), -1, _SHORTEST - 1
        for _ in range(_PLACES):
            if place < 0 or length == _LONGEST:
                break
            common = _common(tokens, place)
            if common > length:
                best, length = place, common
            place = self._before[place]
        return [] if best < 0 else _following(tokens, best + 1, most)

    def _take(self, tokens: list[int]) -> None:
        """Index every pair that something follows."""
        start = len(self._before)
        for place in range(start, min(len(tokens) - 1, start + _AT_ONCE)):
            pair = _pair(tokens, place)
            self._before.append(self._newest.get(pair, -1))
            if len(self._newest) == _PAIRS:
                self._newest.clear()
            self._newest[pair] = place


def _pair(tokens: list[int], place: int) -> int:
    return tokens[place - 1] << 32 | tokens[place]


def _common(tokens: list[int], place: int) -> int:
    """How many tokens up to `place` are those that the text ends with, `_SHORTEST` to `_LONGEST`."""
    end, length = len(tokens) - 1, _SHORTEST
    while length < _LONGEST and length <= place and tokens[place - length] == tokens[end - length]:
        length += 1
    return length


def _following(tokens: list[int], start: int, most: int) -> list[int]:
    """The tokens from `start` on. Where they run into the end, the text is taken to go on repeating itself."""
    found = tokens[start : start + most]
    for place in range(most - len(found)):
        found.append(found[place])
    return found
