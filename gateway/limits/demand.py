"""What one request asks of its key's limits, worked out before any of them is looked at."""

from msgspec import Struct

from gateway.call import Call
from gateway.identity import Allowance, Identity
from gateway.limits.config import LimitsConfig
from gateway.limits.periods import Period, period_name
from gateway.limits.prices import FREE, Prices

_MILLION = 1_000_000


class Demand(Struct, frozen=True, kw_only=True):
    """The limits of a key (0: none) and what a request would take from them.

    `tokens` are reserved and `estimate_usd` is held until the request ends. `budget` names the period that the money counts
    for, as of `at` (Unix seconds).
    """

    key_id: str
    requests_per_minute: float
    tokens_per_minute: float
    concurrency: int
    budget_usd: float
    period: Period
    budget: str
    at: float
    prompt_tokens: int
    tokens: int
    estimate_usd: float

    @property
    def is_too_large(self) -> bool:
        """Whether the prompt alone is more than the key may ever use in a minute."""
        return self.prompt_tokens > self.tokens_per_minute > 0


def is_unlimited(allowance: Allowance) -> bool:
    """Whether nothing has to be counted for such a key."""
    return not (allowance.requests_per_minute or allowance.tokens_per_minute or allowance.concurrency or allowance.budget_usd)


def demand_of(identity: Identity, call: Call, config: LimitsConfig, prices: Prices, now: float) -> Demand:
    """Work out what a call asks for.

    The reservation is the prompt and the longest possible answer (`default_reservation` where the client set no bound), but no
    more than the whole limit: an answer is rarely as long as it may be, and what it takes beyond is charged in the end.

    Args:
        now: Unix seconds.
    """
    allowance = identity.allowance
    answer = call.max_tokens or config.default_reservation
    tokens = call.prompt_tokens + answer
    if allowance.tokens_per_minute:
        tokens = min(tokens, allowance.tokens_per_minute)
    estimate_usd = 0.0
    if allowance.budget_usd:
        price = prices.get(call.model, FREE)
        estimate_usd = (call.prompt_tokens * price.input_per_mtok + answer * price.output_per_mtok) / _MILLION
    return Demand(
        key_id=identity.key_id,
        requests_per_minute=allowance.requests_per_minute,
        tokens_per_minute=allowance.tokens_per_minute,
        concurrency=allowance.concurrency,
        budget_usd=allowance.budget_usd,
        period=allowance.budget_period,
        budget=period_name(allowance.budget_period, now) if allowance.budget_usd else "",
        at=now,
        prompt_tokens=call.prompt_tokens,
        tokens=tokens,
        estimate_usd=estimate_usd,
    )
