"""Who sends a request, and what they may: what authentication tells everything behind it. Plain data."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.priority import Priority

Amount = Annotated[int, Meta(ge=0)]


class Allowance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a key may use; 0 means no limit.

    `requests_per_minute` and `tokens_per_minute` (prompt and completion together) refill continuously. `concurrency` counts
    requests that run or wait. `budget_usd` is spent by the prices of the configuration within each `budget_period` (UTC).
    """

    requests_per_minute: Amount = 0
    tokens_per_minute: Amount = 0
    concurrency: Amount = 0
    budget_usd: Annotated[float, Meta(ge=0)] = 0.0
    budget_period: Literal["day", "month", "total"] = "month"


class Identity(Struct, frozen=True, kw_only=True):
    """One key, without the key. Requests of one `tenant` share caches and conversations; nobody else sees them.

    `models` is None where the key may use all. `priority` is the best class that its requests may claim, and their default;
    `weight` is its share of a queue beside other keys.
    """

    key_id: str
    tenant: str
    name: str = ""
    models: frozenset[str] | None = None
    priority: Priority = "standard"
    weight: float = 1.0
    allowance: Allowance = Allowance()
    is_admin: bool = False

    def may_use(self, model: str) -> bool:
        """Whether the key is meant for this public model name."""
        return self.models is None or model in self.models


ANONYMOUS = Identity(key_id="", tenant="", name="anonymous", priority="interactive", is_admin=False)
"""Everybody, where no key is asked for."""
