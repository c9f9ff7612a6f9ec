"""One choice of one request on its way through llama.cpp. Plain data, plus the few sums that everybody needs.

There is no separate state for prefill and decode: a sequence always has some tokens whose keys and values are still to be
computed. One that lacks exactly its newest token is decoding; one that lacks more (a new prompt, or everything again after a
preemption) is prefilling. After any step that computes its last token, the next token can be sampled.
"""

from dataclasses import dataclass, field

from backends.child import sequence


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence(sequence.Sequence):
    """What every engine knows of a sequence, and where it is in llama.cpp."""

    slot: int = -1  # llama.cpp's sequence id, or -1 while it holds none
    cells: list[int] = field(default_factory=list)  # one per token in the KV cache
    admitted: bool = False  # at least once; a preempted sequence is admitted again
    age: int = 0  # steps since admission in which it got nothing computed
    boundaries: set[int] = field(default_factory=set)  # lengths at which somebody waits to share its prefix

    @property
    def num_past(self) -> int:
        """Tokens whose keys and values are in the cache."""
        return len(self.cells)

    @property
    def num_missing(self) -> int:
        """Tokens still to be computed before the next one can be sampled."""
        return len(self.tokens) - len(self.cells)

    @property
    def is_decoding(self) -> bool:
        """Only the newest token is missing."""
        return len(self.tokens) - len(self.cells) == 1
