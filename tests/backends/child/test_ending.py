"""The rule that ends an answer, in the order in which its reasons count."""

from dataclasses import dataclass

import pytest

from backends.child.ending import ending
from backends.child.sequence import Sequence


@dataclass
class Grammar:
    """As much of a constraint as the rule asks for."""

    is_stopped: bool


@dataclass
class Bounds:
    max_new: int = 10
    limit: int = 10
    end_tokens: frozenset[int] = frozenset({9})
    constraint: Grammar | None = None


@pytest.mark.parametrize(
    ("tokens", "bounds", "reason"),
    [
        ([1, 2, 3], Bounds(), None),
        ([1, 2, 9], Bounds(), "stop"),
        ([1, 9, 3], Bounds(), None),  # only the newest token counts
        ([1, 2, 3], Bounds(max_new=1), "length"),
        ([1, 2, 3], Bounds(max_new=2), None),
        ([1, 2, 3], Bounds(limit=3), "length"),
        ([1, 2, 3], Bounds(limit=4), None),
        ([1, 2, 3], Bounds(constraint=Grammar(True)), "done"),
        ([1, 2, 3], Bounds(constraint=Grammar(False)), None),
        ([1, 2, 3], Bounds(max_new=1, constraint=Grammar(True)), "done"),
        ([1, 2, 9], Bounds(max_new=1, constraint=Grammar(True)), "stop"),
    ],
)
def test_the_newest_token_ends_an_answer(tokens: list[int], bounds: Bounds, reason: str | None) -> None:
    sequence = Sequence(request=1, index=0, tenant="", tokens=tokens, num_prompt=2)
    assert ending(sequence, bounds) == reason  # type: ignore[arg-type]
