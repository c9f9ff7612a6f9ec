"""The limiter of one process, limit by limit: what is refused, with which words and headers, and what comes back."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from backends.types import Usage
from gateway.call import Call
from gateway.identity import ANONYMOUS, Identity
from gateway.limits.config import LimitsConfig
from gateway.limits.limiter import UNLIMITED
from gateway.limits.local import LocalLimiter
from gateway.limits.refusals import RateLimited
from tests.gateway.limits.conftest import PRICES, new_call, new_identity

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()


class MemorySpend:
    """A spend store that forgets."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, str], float] = {}

    def known(self, key_id: str, period: str) -> float | None:
        return self.sums.get((key_id, period))

    async def load(self, key_id: str, period: str) -> None:
        self.sums.setdefault((key_id, period), 0.0)

    def add(self, key_id: str, period: str, usd: float) -> None:
        self.sums[key_id, period] = self.sums.get((key_id, period), 0.0) + usd

    async def close(self) -> None:
        pass


class Desk:
    """A limiter with a clock that the test sets."""

    def __init__(self, share: float = 1.0, max_keys: int = 100) -> None:
        self.clock, self.now, self.spend = 1000.0, NOON, MemorySpend()
        config = LimitsConfig(default_reservation=100, max_keys=max_keys)
        clock, now = lambda: self.clock, lambda: self.now
        self.limiter = LocalLimiter(config, self.spend, prices=PRICES, share=share, clock=clock, now=now)
        self.reserve = self.limiter.reserve

    async def refusal(self, identity: Identity, call: Call) -> RateLimited:
        with pytest.raises(RateLimited) as refused:
            await self.reserve(identity, call)
        assert refused.value.status == 429
        return refused.value


def text(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode().removeprefix("x-ratelimit-"): value.decode() for name, value in headers}


async def test_a_key_without_limits_costs_nothing() -> None:
    desk = Desk()
    reservation = await desk.reserve(ANONYMOUS, new_call(10**9, 10**9))
    assert reservation is UNLIMITED
    assert reservation.headers() == []
    await reservation.settle(Usage(1, 1), 5.0)
    assert len(desk.limiter) == 0


async def test_requests_per_minute_refill_continuously() -> None:
    desk, key = Desk(), new_identity(requests_per_minute=3)
    for left, reset in ((2, "20s"), (1, "40s"), (0, "1m0s")):
        reservation = await desk.reserve(key, new_call())
        assert text(reservation.headers()) == {
            "limit-requests": "3",
            "remaining-requests": str(left),
            "reset-requests": reset,
        }
    error = await desk.refusal(key, new_call())
    assert error.message == "Rate limit reached for requests per minute: limit 3, left 0, needed 1. Try again in 20.000 s."
    assert (error.type, error.code) == ("requests", "rate_limit_exceeded")
    assert error.headers["retry-after"] == "20"
    assert error.headers["retry-after-ms"] == "20000"
    assert error.headers["x-ratelimit-remaining-requests"] == "0"
    assert "x-should-retry" not in error.headers
    desk.clock += 19.99
    await desk.refusal(key, new_call())
    desk.clock += 0.01
    await desk.reserve(key, new_call())
    await desk.refusal(key, new_call())


async def test_tokens_are_reserved_at_first_and_charged_in_the_end() -> None:
    desk, key = Desk(), new_identity(tokens_per_minute=600)
    reservation = await desk.reserve(key, new_call(100, 200))
    assert text(reservation.headers()) == {"limit-tokens": "600", "remaining-tokens": "300", "reset-tokens": "30s"}
    await desk.refusal(key, new_call(100, 201))
    await reservation.settle(Usage(100, 20), 0.0)
    assert text((await desk.reserve(key, new_call(100, 380))).headers())["remaining-tokens"] == "0"
    error = await desk.refusal(key, new_call(5, 5))
    assert (error.type, error.code) == ("tokens", "rate_limit_exceeded")
    assert "limit 600, left 0, needed 10. Try again in 1.000 s" in error.message


async def test_what_was_used_beyond_the_reservation_is_a_debt() -> None:
    desk, key = Desk(), new_identity(tokens_per_minute=600)
    reservation = await desk.reserve(key, new_call(100, 500))
    await reservation.settle(Usage(100, 1100), 0.0)
    error = await desk.refusal(key, new_call(0, 1))
    assert error.headers["retry-after"] == "61"
    assert error.headers["x-ratelimit-reset-tokens"] == "2m0s"
    desk.clock += 60.1
    await desk.reserve(key, new_call(0, 1))


async def test_a_debt_counts_from_the_moment_it_is_known() -> None:
    desk, key = Desk(), new_identity(tokens_per_minute=600)
    reservation = await desk.reserve(key, new_call(50, 50))
    desk.clock += 3600
    await reservation.settle(Usage(50, 350), 0.0)
    assert text((await desk.reserve(key, new_call(50, 50))).headers())["remaining-tokens"] == "200"


async def test_nothing_used_gives_all_tokens_back_but_not_the_request() -> None:
    desk, key = Desk(), new_identity(tokens_per_minute=600, requests_per_minute=2)
    await (await desk.reserve(key, new_call(300, 300))).settle(None, 0.0)
    headers = text((await desk.reserve(key, new_call(300, 300))).headers())
    assert (headers["remaining-tokens"], headers["remaining-requests"]) == ("0", "0")


async def test_an_answer_without_a_bound_reserves_the_default() -> None:
    desk, key = Desk(), new_identity(tokens_per_minute=1000)
    assert text((await desk.reserve(key, new_call(50))).headers())["remaining-tokens"] == "850"


async def test_a_reservation_is_never_more_than_the_limit() -> None:
    desk, key = Desk(), new_identity(tokens_per_minute=600)
    reservation = await desk.reserve(key, new_call(100, 10**6))
    assert text(reservation.headers())["remaining-tokens"] == "0"
    await reservation.settle(Usage(100, 50), 0.0)
    await desk.refusal(key, new_call(100, 10**6))
    desk.clock += 15
    await desk.reserve(key, new_call(100, 10**6))


async def test_a_prompt_larger_than_the_limit_is_refused_for_good() -> None:
    desk, key = Desk(), new_identity(tokens_per_minute=600)
    error = await desk.refusal(key, new_call(601, 1))
    assert "601 tokens, more than the 600 tokens per minute" in error.message
    assert error.type == "tokens"
    assert error.headers == {"x-should-retry": "false"}


async def test_concurrency_counts_until_requests_are_settled() -> None:
    desk, key = Desk(), new_identity(concurrency=2)
    first, second = await desk.reserve(key, new_call()), await desk.reserve(key, new_call())
    assert first.headers() == []
    error = await desk.refusal(key, new_call())
    assert error.code == "concurrency"
    assert error.message == "This key may have 2 requests in flight, and 2 are."
    assert error.headers["retry-after"] == "1"
    await first.settle(None, 0.0)
    await desk.reserve(key, new_call())
    await second.settle(Usage(1, 1), 0.0)
    await desk.reserve(key, new_call())


@pytest.mark.parametrize(
    ("period", "ends", "retry_after"),
    [("day", "2026-12-01", "43200"), ("month", "2026-12-01", "43200"), ("total", None, None)],
)
async def test_a_spent_budget_is_refused_until_its_period_ends(period: str, ends: str | None, retry_after: str | None) -> None:
    desk, key = Desk(), new_identity(budget_usd=1.0, budget_period=period)
    await (await desk.reserve(key, new_call(10, 10))).settle(Usage(10, 10), 0.75)
    await (await desk.reserve(key, new_call(10, 10))).settle(Usage(10, 10), 0.5)
    error = await desk.refusal(key, new_call(10, 10))
    assert (error.type, error.code) == ("insufficient_quota", "insufficient_quota")
    assert "$1.00" in error.message
    assert "$1.25" in error.message
    assert error.headers.get("retry-after") == retry_after
    assert error.headers["x-should-retry"] == "false"
    assert (ends or "never") in error.message + "never"
    desk.now += 12 * 3600
    if ends is None:
        await desk.refusal(key, new_call(10, 10))
    else:
        await desk.reserve(key, new_call(10, 10))


async def test_requests_in_flight_hold_money_so_a_burst_cannot_overspend() -> None:
    desk, key = Desk(), new_identity(budget_usd=1.0)
    large = [await desk.reserve(key, new_call(200_000, 200_000)) for _ in range(2)]
    error = await desk.refusal(key, new_call(1, 1))
    assert "set aside for 2 requests in flight" in error.message
    assert "x-should-retry" not in error.headers
    for reservation in large:
        await reservation.settle(Usage(200_000, 1000), 0.2)
    await desk.reserve(key, new_call(1, 1))


async def test_a_refused_request_takes_nothing() -> None:
    desk, key = Desk(), new_identity(requests_per_minute=10, tokens_per_minute=100, concurrency=5)
    await desk.reserve(key, new_call(0, 100))
    for _ in range(20):
        assert (await desk.refusal(key, new_call(0, 100))).type == "tokens"
    desk.clock += 60
    assert text((await desk.reserve(key, new_call(0, 100))).headers())["remaining-requests"] == "9"


async def test_keys_do_not_share_limits() -> None:
    desk = Desk()
    await desk.reserve(new_identity("a", requests_per_minute=1), new_call())
    await desk.reserve(new_identity("b", requests_per_minute=1), new_call())


async def test_a_process_gives_only_its_share() -> None:
    desk, key = Desk(share=0.25), new_identity(requests_per_minute=2, tokens_per_minute=1000, concurrency=4)
    reservation = await desk.reserve(key, new_call(900, 100))
    assert (await desk.refusal(key, new_call())).code == "concurrency"
    await reservation.settle(Usage(900, 100), 0.0)
    desk.clock += 119
    await desk.refusal(key, new_call(900, 100))
    desk.clock += 121
    await desk.reserve(key, new_call(900, 100))


async def test_idle_keys_are_forgotten_and_busy_ones_are_not() -> None:
    desk = Desk(max_keys=3)
    busy = new_identity("busy", concurrency=1)
    reservation = await desk.reserve(busy, new_call())
    for number in range(50):
        idle = await desk.reserve(new_identity(str(number), requests_per_minute=1), new_call())
        await idle.settle(None, 0.0)
        assert len(desk.limiter) <= 3
    await desk.refusal(busy, new_call())
    await reservation.settle(None, 0.0)
    await desk.reserve(busy, new_call())


async def test_a_changed_limit_counts_at_once() -> None:
    desk = Desk()
    await desk.reserve(new_identity(requests_per_minute=1), new_call())
    await desk.refusal(new_identity(requests_per_minute=1), new_call())
    desk.clock += 30
    raised = text((await desk.reserve(new_identity(requests_per_minute=100), new_call())).headers())
    assert raised["remaining-requests"] == "49"


@pytest.mark.parametrize("make", [lambda: LimitsConfig(), lambda: PRICES["model"]])
def test_settings_are_frozen(make: Callable[[], object]) -> None:
    with pytest.raises(AttributeError):
        make().anything = 1  # type: ignore[attr-defined]
