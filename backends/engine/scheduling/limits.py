"""Bounds of the scheduler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds in tokens and sequences.

    Args:
        slots: sequences that run at once, at least 1.
        budget: tokens of one step, more than `slots`: prompts always get a part.
        chunk: prompt tokens in a step in which others decode. They bound the time between two tokens of a stream.
        context: the most tokens of a sequence.
        draft_below: drafts are verified while at most this many sequences decode: with more, the device has no idle arithmetic.

    Raises:
        ValueError: a bound is too small.
    """

    slots: int
    budget: int
    chunk: int
    context: int
    draft_below: int = 0

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"slots is {self.slots}, must be at least 1")
        if self.budget <= self.slots:
            raise ValueError(f"budget is {self.budget} tokens, must be more than the {self.slots} slots")
        if self.chunk < 1:
            raise ValueError(f"chunk is {self.chunk} tokens, must be at least 1")
        if self.context < 2:
            raise ValueError(f"context is {self.context} tokens, must be at least 2")

    def prefill_tokens_beside(self, num_decodes: int) -> int:
        """How many prompt tokens a step may hold beside so many decoding sequences; the budget bounds them too."""
        return self.chunk if num_decodes else self.budget
