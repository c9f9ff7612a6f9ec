"""When the answer of one choice is over, as far as its tokens say. Stop strings are found in its text, elsewhere."""

from typing import Protocol

from backends.child.sequence import Sequence
from backends.child.work import Finish
from backends.text.constraint import Constraint


class Bounds(Protocol):
    """What the rule asks of an engine's work for one sequence."""

    @property
    def max_new(self) -> int:
        """The most tokens that may be generated."""
        ...

    @property
    def limit(self) -> int:
        """The most tokens, prompt included, that the sequence may ever have."""
        ...

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end the answer unseen."""
        ...

    @property
    def constraint(self) -> Constraint | None:
        """Where the answer stands in its grammar, the newest token included."""
        ...


def ending(sequence: Sequence, bounds: Bounds) -> Finish | None:
    """Say whether the newest token of a sequence ends it, and why; None while it goes on."""
    if sequence.tokens[-1] in bounds.end_tokens:
        return "stop"
    if bounds.constraint is not None and bounds.constraint.is_stopped:
        return "done"
    if sequence.num_generated >= bounds.max_new or len(sequence.tokens) >= bounds.limit:
        return "length"
    return None
