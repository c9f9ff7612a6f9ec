"""The 429 answers: which limit was reached, by how much, and when to come back."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from gateway.errors import ApiError
from gateway.limits.demand import Demand
from gateway.limits.levels import Level, level_headers
from gateway.limits.periods import period_end

LimitKind = Literal["requests", "tokens", "insufficient_quota"]
Verdict = Literal["", "budget", "held", "concurrency", "requests", "tokens", "too_large"]

# How long a request in flight goes on is anybody's guess.
_CONCURRENCY_RETRY_S = 1.0


class Standing(Struct, frozen=True, kw_only=True):
    """How a key stands with its limits. `spent_usd` is final, `held_usd` is set aside for requests in flight."""

    requests: Level | None = None
    tokens: Level | None = None
    in_flight: int = 0
    spent_usd: float = 0.0
    held_usd: float = 0.0


class RateLimited(ApiError):
    """A limit of the key is reached.

    Args:
        kind: the error's type: `requests`, `tokens` or `insufficient_quota`.
        retry_after_s: when the same request may succeed; None when waiting alone cannot help.
        headers: the `x-ratelimit-*` headers.
    """

    status = 429
    code = "rate_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        kind: LimitKind,
        code: str | None = None,
        retry_after_s: float | None = None,
        should_retry: bool = True,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        every = dict(headers)
        if retry_after_s is not None:
            every["retry-after"] = str(max(1, math.ceil(retry_after_s)))
            every["retry-after-ms"] = str(max(1, math.ceil(retry_after_s * 1000)))
        if not should_retry:
            every["x-should-retry"] = "false"
        super().__init__(message, code=code, headers=every)
        self.type = kind


def judge(demand: Demand, standing: Standing) -> Verdict:
    """Say which limit a request would break; empty when it may go ahead.

    Money is only checked against what is spent and held, so the last request of a budget may go over it, but no second one.
    """
    if demand.budget_usd and standing.spent_usd + standing.held_usd >= demand.budget_usd:
        return "budget" if standing.spent_usd >= demand.budget_usd else "held"
    if demand.concurrency and standing.in_flight >= demand.concurrency:
        return "concurrency"
    if standing.requests is not None and not standing.requests.has(1):
        return "requests"
    if standing.tokens is not None and not standing.tokens.has(demand.tokens):
        return "tokens"
    return ""


def refusal(verdict: Verdict, demand: Demand, standing: Standing) -> RateLimited:
    """Put a verdict into words and headers."""
    headers = level_headers(standing.requests, standing.tokens)
    if verdict == "requests" and standing.requests is not None:
        return _too_fast("requests", standing.requests, 1, headers)
    if verdict == "tokens" and standing.tokens is not None:
        return _too_fast("tokens", standing.tokens, demand.tokens, headers)
    if verdict == "too_large":
        message = (
            f"The prompt has about {demand.prompt_tokens} tokens, more than the {demand.tokens_per_minute:.0f} tokens per "
            "minute of this key: it can never be sent. Shorten it."
        )
        return RateLimited(message, kind="tokens", should_retry=False, headers=headers)
    if verdict == "concurrency":
        message = f"This key may have {demand.concurrency} requests in flight, and {standing.in_flight} are."
        return RateLimited(message, kind="requests", code="concurrency", retry_after_s=_CONCURRENCY_RETRY_S, headers=headers)
    return _no_money(verdict, demand, standing, headers)


def _too_fast(kind: LimitKind, level: Level, needed: int, headers: list[tuple[str, str]]) -> RateLimited:
    wait_s = level.wait_s(needed)
    amounts = f"limit {level.limit:g}, left {max(0.0, math.floor(level.left)):.0f}, needed {needed}"
    message = f"Rate limit reached for {kind} per minute: {amounts}. Try again in {max(wait_s, 0.001):.3f} s."
    return RateLimited(message, kind=kind, retry_after_s=wait_s, headers=headers)


def _no_money(verdict: Verdict, demand: Demand, standing: Standing, headers: list[tuple[str, str]]) -> RateLimited:
    budget = f"${demand.budget_usd:.2f} ({'in all' if demand.period == 'total' else 'per ' + demand.period})"
    code: LimitKind = "insufficient_quota"
    if verdict == "held":
        message = f"What is left of the budget of {budget} is set aside for {standing.in_flight} requests in flight."
        return RateLimited(message, kind=code, code=code, retry_after_s=_CONCURRENCY_RETRY_S, headers=headers)
    message = f"The budget of {budget} of this key is spent: ${standing.spent_usd:.2f}."
    end = period_end(demand.period, demand.at)
    if end is not None:
        message += f" It begins anew at {datetime.fromtimestamp(end, UTC):%Y-%m-%d} 00:00 UTC."
    retry_after_s = None if end is None else end - demand.at
    return RateLimited(message, kind=code, code=code, retry_after_s=retry_after_s, should_retry=False, headers=headers)
