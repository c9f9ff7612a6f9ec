"""One choice of one request on its way through an engine, as far as every engine has to know it."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """A prompt and the tokens generated so far.

    Engines add what their scheduler has to know in a subclass, decorated like this one: sequences are compared by identity.

    Args:
        request: id of the request, in this life of the child.
        index: which of its `n` choices.
        tenant: cached prefixes are shared only within a tenant.
        tokens: prompt, then generated tokens; grows.
        num_prompt: how many of them are prompt.
        all_logits: logits of every prompt token are wanted (echo with logprobs), so nothing may come from the cache.
        work: what the engine needs to sample for it; schedulers never look inside.
        cached: prompt tokens that came from the cache when it was first admitted.
        finished: it was let go; nothing more is computed for it.
    """

    request: int
    index: int
    tenant: str
    tokens: list[int]
    num_prompt: int
    all_logits: bool = False
    work: Any = None
    cached: int = 0
    finished: bool = False

    @property
    def num_generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - self.num_prompt
