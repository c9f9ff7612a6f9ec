"""The local limiter beside a model that counts in fractions: the same verdicts and the same remainders, whatever happens."""

import asyncio
from collections.abc import Coroutine
from fractions import Fraction
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from backends.types import Usage
from gateway.limits.config import LimitsConfig
from gateway.limits.limiter import Reservation
from gateway.limits.local import LocalLimiter
from gateway.limits.prices import Price, cost
from gateway.limits.refusals import RateLimited
from tests.gateway.limits.conftest import new_call, new_identity
from tests.gateway.limits.test_local_limiter import NOON, MemorySpend

T = TypeVar("T")

# A quarter of a dollar per token: sums of these are exact in binary.
PRICE = Price(input_per_mtok=250_000.0, output_per_mtok=250_000.0)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as stopped:
        value: T = stopped.value
        return value
    raise AssertionError("it waited")


class Bucket:
    """A bucket of `limit` that refills by `limit` a minute."""

    def __init__(self, limit: int) -> None:
        self.limit, self.left = limit, Fraction(limit)

    def refill(self, seconds: Fraction) -> None:
        self.left = min(Fraction(self.limit), self.left + seconds * self.limit / 60)


class LimiterMachine(RuleBasedStateMachine):
    """One key with all limits."""

    @initialize(
        requests=st.integers(1, 12), tokens=st.integers(10, 300), concurrency=st.integers(1, 4), budget=st.integers(5, 4000)
    )
    def begin(self, requests: int, tokens: int, concurrency: int, budget: int) -> None:
        self.time, self.spend = Fraction(1000), MemorySpend()
        self.key = new_identity(
            requests_per_minute=requests, tokens_per_minute=tokens, concurrency=concurrency, budget_usd=float(budget)
        )
        config = LimitsConfig(default_reservation=16)
        clock = lambda: float(self.time)  # noqa: E731
        self.limiter = LocalLimiter(config, self.spend, prices={"model": PRICE}, clock=clock, now=lambda: NOON)
        self.requests, self.tokens = Bucket(requests), Bucket(tokens)
        self.concurrency, self.budget, self.spent = concurrency, Fraction(budget), Fraction(0)
        self.open: list[tuple[Reservation, int, int, Fraction]] = []

    def expected(self, prompt: int, reserved: int) -> str:
        held = sum((estimate for *_, estimate in self.open), Fraction(0))
        if prompt > self.tokens.limit:
            return "tokens/rate_limit_exceeded"
        if self.spent + held >= self.budget:
            return "insufficient_quota/insufficient_quota"
        if len(self.open) >= self.concurrency:
            return "requests/concurrency"
        if self.requests.left < 1:
            return "requests/rate_limit_exceeded"
        return "tokens/rate_limit_exceeded" if self.tokens.left < reserved else ""

    @rule(prompt=st.integers(0, 120), answer=st.integers(0, 200))
    def reserve(self, prompt: int, answer: int) -> None:
        longest = prompt + (answer or 16)
        reserved = min(longest, self.tokens.limit)
        expected = self.expected(prompt, reserved)
        if expected:
            with pytest.raises(RateLimited) as refused:
                finish(self.limiter.reserve(self.key, new_call(prompt, answer)))
            assert f"{refused.value.type}/{refused.value.code}" == expected
            return
        reservation = finish(self.limiter.reserve(self.key, new_call(prompt, answer)))
        self.requests.left -= 1
        self.tokens.left -= reserved
        headers = dict(reservation.headers())
        assert int(headers[b"x-ratelimit-remaining-requests"]) == self.requests.left // 1
        assert int(headers[b"x-ratelimit-remaining-tokens"]) == max(0, self.tokens.left // 1)
        self.open.append((reservation, prompt, reserved, Fraction(longest, 4)))

    @rule(which=st.integers(0, 9), answer=st.one_of(st.none(), st.integers(0, 300)))
    def settle(self, which: int, answer: int | None) -> None:
        if not self.open:
            return
        reservation, prompt, reserved, _ = self.open.pop(which % len(self.open))
        usage = None if answer is None else Usage(prompt, answer)
        paid = 0.0 if usage is None else cost(usage, PRICE)
        finish(reservation.settle(usage, paid))
        used = 0 if usage is None else usage.total_tokens
        self.tokens.left = min(Fraction(self.tokens.limit), self.tokens.left + reserved - used)
        self.spent += Fraction(used, 4)

    @rule(sixty_fourths=st.integers(1, 64 * 40))
    def let_time_pass(self, sixty_fourths: int) -> None:
        seconds = Fraction(sixty_fourths, 64)
        self.time += seconds
        self.requests.refill(seconds)
        self.tokens.refill(seconds)

    @invariant()
    def never_more_than_allowed_in_flight(self) -> None:
        assert len(self.open) <= self.concurrency

    @invariant()
    def money_is_counted_exactly(self) -> None:
        assert self.spend.known("key", "2026-11") in (None, float(self.spent))


LimiterMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestLimiter = LimiterMachine.TestCase


def test_many_tasks_never_oversell_one_key() -> None:
    async def test() -> int:
        limiter = LocalLimiter(LimitsConfig(), MemorySpend(), prices={}, clock=lambda: 1.0, now=lambda: NOON)
        key = new_identity(tokens_per_minute=1000)

        async def ask() -> bool:
            try:
                await limiter.reserve(key, new_call(20, 30))
            except RateLimited:
                return False
            return True

        return sum(await asyncio.gather(*(ask() for _ in range(100))))

    assert asyncio.run(test()) == 20
