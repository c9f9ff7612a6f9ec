"""What a table shows of every server, and what is wanted of Baton: the arithmetic from figures to answers."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

Round = dict[str, dict[str, dict[str, Any]]]
"""Figures of one repetition: by server, then by case. Lacks servers that could not be had, and cases that one was not sent."""


class Column(Struct, frozen=True, kw_only=True):
    """A number that servers have. `pick` takes a round and a server, and raises `KeyError` where that was not measured."""

    title: str
    unit: str
    pick: Callable[[Round, str], float]

    def values(self, rounds: list[Round], server: str) -> list[float]:
        """Look it up round by round; empty when it was not measured."""
        try:
            return [self.pick(each, server) for each in rounds]
        except KeyError:
            return []


class Goal(Struct, frozen=True, kw_only=True):
    """What Baton is to reach. `pick` raises `KeyError` in a round that lacks a server it needs."""

    title: str
    unit: str
    pick: Callable[[Round], float]
    at_most: float | None = None
    at_least: float | None = None

    def values(self, rounds: list[Round]) -> list[float]:
        """Compute it round by round: neighbours in time shared the machine's mood. Empty without the server it needs."""
        try:
            return [self.pick(each) for each in rounds]
        except KeyError:
            return []

    def holds(self, value: float) -> bool:
        """Say whether a value is what is wanted."""
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)
