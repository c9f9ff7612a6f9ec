"""One choice of one request on its way through the scheduler. Plain data, plus the few sums that everybody needs.

There is no separate state for prefill and decode: a sequence always has some tokens whose keys and values are still to be
computed. One that lacks exactly its newest token, a generated one, is decoding; one that lacks more, or part of its prompt, is
prefilling: a new prompt, or everything again after a preemption, its answer so far included.
"""

from dataclasses import dataclass, field
from typing import Optional

from backends.child import sequence as child
from backends.engine.kv.manager import Holding


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence(child.Sequence):
    """What this engine's scheduler adds.

    Args:
        priority: -2 (most urgent) to 2.
        adapter: name of the LoRA adapter, empty for none; prefixes are shared only within it.
        holding: its blocks; `holding.tables[g]` is what attention in group g reads by.
        num_computed: leading tokens whose keys and values are in the cache.
        draft: tokens guessed to come next, to be verified in the planned step; empty outside of a step.
        running: it was admitted; else it waits, or it was let go.
        admissions: how often it was admitted: more than once after a preemption.
        due: time, by the scheduler's clock, at which its prefill should begin.
        number: in the order of submission.
        donor: a running sequence that computes the first `promised` tokens of this one, which waits for that.
        deferrals: how often it waited for a donor.
    """

    priority: int = 0
    adapter: str = ""
    holding: Holding = field(default_factory=Holding)
    num_computed: int = 0
    draft: list[int] = field(default_factory=list)
    running: bool = False
    admissions: int = 0
    due: float = 0.0
    number: int = 0
    donor: Optional["Sequence"] = None
    promised: int = 0
    deferrals: int = 0

    @property
    def num_missing(self) -> int:
        """Tokens still to be computed before the next one can be sampled."""
        return len(self.tokens) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """Only the newest token is missing, and it was generated."""
        return len(self.tokens) - self.num_computed == 1 and len(self.tokens) > self.num_prompt

    @property
    def rank(self) -> tuple[float, int]:
        """The order in which sequences are served: lower ones first. Does not depend on the time at which it is asked for."""
        return self.due, self.number
