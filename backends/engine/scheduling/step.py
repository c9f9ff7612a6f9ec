"""What one step computes."""

from dataclasses import dataclass, field

from backends.engine.kv.manager import BlockCopy
from backends.engine.scheduling.sequence import Sequence


@dataclass(slots=True, eq=False)
class Chunk:
    """Tokens `start` to `end - 1` of a sequence: of its prompt, or of what it had generated before it was preempted.

    Logits are wanted of the last one when `end` is the number of its tokens, and of all with `all_logits`.
    """

    sequence: Sequence
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Step:
    """A plan. Blocks for all of it are in the sequences' tables.

    Args:
        decodes: computed with the decode weights: the newest token, at position `num_computed`, then the tokens of `draft`, one
            position each. Logits are wanted of all of them.
        prefills: parts of prompts, at most one for each sequence, computed with the prefill weights.
        replays: parts of answers, at most one for each sequence, computed with the decode weights, as they were before.
        copies: to be made before anything is computed. No block is the target of one and the source of another.
    """

    decodes: list[Sequence] = field(default_factory=list)
    prefills: list[Chunk] = field(default_factory=list)
    replays: list[Chunk] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """How many tokens the step computes."""
        decoded = sum(1 + len(sequence.draft) for sequence in self.decodes)
        return decoded + sum(chunk.end - chunk.start for chunk in self.chunks)

    @property
    def chunks(self) -> list[Chunk]:
        """All that is not decoding."""
        return [*self.prefills, *self.replays]
