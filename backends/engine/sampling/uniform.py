"""Uniform random numbers that depend on nothing but a key and a position.

A generator with a hidden state gives other numbers after a preemption, a rejected draft or a hand-over to another process. Here
number `i` of a sequence is a function of `i`, so all of these leave the answer as it is.
Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.2 and table 2 (Philox4x64-10).
"""

import secrets

Key = tuple[int, int]
"""Two numbers of 64 bits: what the seed stands for, and the index of the choice."""

_WORD = 2**64 - 1
_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_ROUNDS = 10


def key_of(seed: int | None, index: int) -> Key:
    """Make the key of choice `index`: the same every time for a seed (of which 64 bits count), fresh without one."""
    return (secrets.randbits(64) if seed is None else seed & _WORD, index)


class Uniforms:
    """The random numbers of one choice."""

    __slots__ = ("_block", "_key", "_words")

    def __init__(self, key: Key) -> None:
        self._key = key
        self._block = -1
        self._words: tuple[int, int, int, int] = (0, 0, 0, 0)

    def at(self, position: int) -> float:
        """Give the number of a position (0 or more): a multiple of 2**-53 from 0, inclusive, to 1, exclusive."""
        block, word = divmod(position, 4)
        if block != self._block:
            self._block, self._words = block, philox(block, self._key)
        return (self._words[word] >> 11) * 2.0**-53


def philox(counter: int, key: Key) -> tuple[int, int, int, int]:
    """Encrypt a counter (below 2**64) to four words of 64 bits."""
    a, b, c, d = counter, 0, 0, 0
    k, m = key
    for _ in range(_ROUNDS):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (second >> 64) ^ b ^ k, second & _WORD, (first >> 64) ^ d ^ m, first & _WORD
        k, m = (k + _WEYL[0]) & _WORD, (m + _WEYL[1]) & _WORD
    return a, b, c, d
