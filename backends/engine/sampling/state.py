"""What the sampler knows about one sequence, and one row of logits to sample from."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from backends.engine.sampling.history import History, Ids
from backends.engine.sampling.uniform import Uniforms, key_of
from backends.text.constraint import Constraint, Mask
from backends.types import Sampling


class RowState:
    """How the tokens of one sequence are chosen. It belongs to the sequence, whatever batch that is in.

    Used by one thread at a time. All of it is a function of the request and of the tokens accepted so far: a state made anew
    that is given the same tokens (and has a seed) chooses the same from there on.

    Args:
        prompt: its token ids; the repetition penalty sees them.
        index: which choice of the request it is. Choices of one request with a seed differ, and are the same every time.
        banned: ids that are never chosen.
        constraint: where the answer stands in its grammar, for this sequence alone.
        logprobs: how many alternatives to give beside each token, or None for no log probabilities.
    """

    __slots__ = ("banned", "bias_ids", "bias_values", "constraint", "history", "logprobs", "position", "sampling", "uniforms")

    def __init__(
        self,
        sampling: Sampling,
        prompt: Sequence[int],
        index: int,
        *,
        banned: Collection[int] = (),
        constraint: Constraint | None = None,
        logprobs: int | None = None,
    ) -> None:
        s = self.sampling = sampling
        self.constraint, self.logprobs = constraint, logprobs
        self.position = 0
        self.uniforms = Uniforms(key_of(s.seed, index)) if s.temperature > 0 else None
        self.banned: Ids = np.fromiter(banned, np.int64, len(banned))
        self.bias_ids: Ids = np.fromiter(s.logit_bias, np.int64, len(s.logit_bias))
        self.bias_values = np.fromiter(s.logit_bias.values(), np.float32, len(s.logit_bias))
        self.history: History | None = None
        if s.repetition_penalty != 1 or s.frequency_penalty != 0 or s.presence_penalty != 0:
            self.history = History(prompt if s.repetition_penalty != 1 else ())

    @property
    def is_filtered(self) -> bool:
        """Whether some tokens that the model makes possible are never drawn."""
        return self.sampling.top_k > 0 or self.sampling.top_p < 1 or self.sampling.min_p > 0

    def accept(self, token: int) -> None:
        """Move on by a chosen token. Raises `Failed` when the constraint does not allow it."""
        self.position += 1
        if self.history is not None:
            self.history.accept(token)
        if self.constraint is not None:
            self.constraint.accept(token)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a batch of logits, and what to choose its token by.

    Args:
        at: index of the row.
        ahead: tokens that are taken to follow those that `state` has accepted; the row predicts the one after them.
        mask: what the constraint allows there, or None where there is none.
    """

    at: int
    state: RowState
    ahead: Sequence[int] = ()
    mask: Mask | None = None

    @property
    def uniform(self) -> float:
        """The random number of this position. Only for states that draw."""
        assert self.state.uniforms is not None
        return self.state.uniforms.at(self.state.position + len(self.ahead))
