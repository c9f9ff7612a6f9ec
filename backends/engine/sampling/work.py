"""What the engine has to know about one sequence to choose its tokens and to see where it ends."""

from dataclasses import dataclass

from backends.child.sequence import Sequence
from backends.engine.sampling.state import RowState
from backends.engine.speculation.drafter import Drafter
from backends.text.constraint import Constraint


@dataclass(slots=True, kw_only=True)
class Work:
    """How to sample for one sequence, and when it ends (`backends.child.ending`).

    Args:
        row: how its tokens are chosen.
        max_new: the most tokens that may be generated.
        limit: the most tokens, prompt included, that it may ever have.
        end_tokens: tokens that end it unseen.
        drafter: guesses tokens ahead; None for no speculation.
        restarts: how often it was begun anew after a fault.
    """

    row: RowState
    max_new: int
    limit: int
    end_tokens: frozenset[int]
    drafter: Drafter | None = None
    restarts: int = 0

    @property
    def constraint(self) -> Constraint | None:
        """Where the answer stands in its grammar."""
        return self.row.constraint

    def propose(self, sequence: Sequence) -> list[int]:
        """Guess what follows; with the token that is chosen behind it, a draft never exceeds the sequence's bounds.

        What a constraint leaves no choice about is guessed first. Penalties, random choices and log probabilities stand in no
        draft's way.
        """
        room = min(self.max_new - sequence.num_generated, self.limit - len(sequence.tokens)) - 1
        if self.drafter is None or room <= 0:
            return []
        forced = self.constraint.forced() if self.constraint is not None else ()
        return self.drafter.propose(sequence.tokens, room, forced)
