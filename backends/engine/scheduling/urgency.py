"""Who is served first: the one with the least slack, by a key that is computed once.

Slack is deadline minus now minus the time that the prefill will take. `now` is the same for all, so the order of
`arrival + target - prefill` is the order of slack at any time: waiting counts by itself, and a key never has to be computed
again. The key is never below the arrival: a sequence can be overtaken only by those that arrive within its target, whatever
their priority, so none starves.
"""

from dataclasses import dataclass

# Seconds within which the first token should come, by priority.
TARGETS_S = {-2: 0.25, -1: 0.5, 0: 1.0, 1: 4.0, 2: 16.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillCost:
    """A prefill of n tokens takes `base_s + per_token_s * n + per_pair_s * n**2` seconds. Zeros while nothing is known."""

    base_s: float = 0.0
    per_token_s: float = 0.0
    per_pair_s: float = 0.0

    def seconds(self, num_tokens: int) -> float:
        """Estimate the prefill of a prompt of `num_tokens`."""
        return self.base_s + num_tokens * (self.per_token_s + num_tokens * self.per_pair_s)


def due(arrival: float, priority: int, prefill_s: float) -> float:
    """When the prefill should begin: between `arrival` and `arrival` plus the target of the priority.

    Raises:
        ValueError: there is no such priority.
    """
    if priority not in TARGETS_S:
        raise ValueError(f"priority is {priority}, must be between {min(TARGETS_S)} and {max(TARGETS_S)}")
    return arrival + max(0.0, TARGETS_S[priority] - prefill_s)
