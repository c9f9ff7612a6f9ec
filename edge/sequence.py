"""One choice of one request on its way through the engine. Plain data, plus the few sums that everybody needs.

There is no separate state for prefill and decode: a sequence always has some tokens whose keys and values are still to be
computed. One that lacks exactly its newest token is decoding; one that lacks more (a new prompt, or everything again after a
preemption) is prefilling. After any step that computes its last token, the next token can be sampled.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """A prompt and the tokens generated so far.

    Args:
        request: id of the request, in this life of the child.
        index: which of its `n` choices.
        tenant: cached prefixes are shared only within a tenant.
        tokens: prompt, then generated tokens; grows.
        num_prompt: how many of them are prompt.
        all_logits: logits of every prompt token are wanted (echo with logprobs), so nothing may come from the cache.
        work: what the runner needs to sample for it; the scheduler never looks inside.
    """

    request: int
    index: int
    tenant: str
    tokens: list[int]
    num_prompt: int
    all_logits: bool = False
    work: Any = None

    slot: int = -1  # llama.cpp's sequence id, or -1 while it holds none
    cells: list[int] = field(default_factory=list)  # one per token in the KV cache
    cached: int = 0  # prompt tokens that came from the cache when it was first admitted
    admitted: bool = False  # at least once; a preempted sequence is admitted again
    age: int = 0  # steps since admission in which it got nothing computed
    boundaries: set[int] = field(default_factory=set)  # lengths at which somebody waits to share its prefix
    finished: bool = False

    @property
    def num_past(self) -> int:
        """Tokens whose keys and values are in the cache."""
        return len(self.cells)

    @property
    def num_missing(self) -> int:
        """Tokens still to be computed before the next one can be sampled."""
        return len(self.tokens) - len(self.cells)

    @property
    def num_generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - self.num_prompt

    @property
    def is_decoding(self) -> bool:
        """Only the newest token is missing."""
        return len(self.tokens) - len(self.cells) == 1
