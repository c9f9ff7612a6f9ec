"""A deployment at the table of one route: with the weight, the tier and the tags that it has there."""

from gateway.call import Call
from gateway.routing.deployment import Attempt, Deployment, Outcomes
from gateway.routing.hashing import stable_hash


class Seat:
    """A member of a route at run time.

    Attributes:
        weight: relative to the others; above 0.
        key: 64 bits of the deployment's name, the same in every process.
        outcomes: the side of the canary's comparison that its attempts count for; None without a canary.
        is_canary: whether it is the canary itself.
    """

    __slots__ = ("deployment", "is_canary", "key", "outcomes", "tags", "tier", "weight")

    def __init__(
        self,
        deployment: Deployment,
        *,
        weight: float = 1.0,
        tier: int = 0,
        tags: frozenset[str] = frozenset(),
        outcomes: Outcomes | None = None,
        is_canary: bool = False,
    ) -> None:
        self.deployment = deployment
        self.weight = weight
        self.tier = tier
        self.tags = tags
        self.outcomes = outcomes
        self.is_canary = is_canary
        self.key = stable_hash(deployment.name)

    def takes(self, call: Call, now: float, *, last_resort: bool = False) -> bool:
        """Whether the call may go here now."""
        return (not call.tags or call.tags <= self.tags) and self.deployment.is_usable(now, last_resort=last_resort)

    def begin(self, call: Call) -> Attempt:
        """Begin an attempt here."""
        call.trail.canary = self.is_canary
        return self.deployment.begin(call, self.outcomes)
