"""Limits that several gateways keep together, on a real server: never oversold, nothing lost, leases that lapse."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.types import Usage
from gateway.call import Call
from gateway.identity import Identity
from gateway.limits.config import LimitsConfig
from gateway.limits.limiter import UNLIMITED, Reservation
from gateway.limits.local import LocalLimiter
from gateway.limits.redis_limiter import RedisLimiter
from gateway.limits.redis_scripts import RENEW, SETTLE
from gateway.limits.refusals import RateLimited
from gateway.limits.spend import SqliteSpend
from gateway.store.redis import Argument, RedisConfig, RedisStore
from gateway.store.sqlite import Database
from tests.gateway.limits.conftest import Fleet, new_call, new_identity
from tests.gateway.limits.test_local_limiter import text


async def refusal(limiter: RedisLimiter, identity: Identity, call: Call) -> RateLimited:
    with pytest.raises(RateLimited) as refused:
        await limiter.reserve(identity, call)
    assert limiter.fallbacks_total == 0
    return refused.value


async def eventually(limiter: RedisLimiter, identity: Identity, call: Call) -> Reservation:
    async with asyncio.timeout(20):
        while True:
            try:
                return await limiter.reserve(identity, call)
            except RateLimited:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("allowance", "amount", "limit"),
    [
        ({"requests_per_minute": 40}, 1, 40),
        ({"tokens_per_minute": 3000}, 75, 3000),
        ({"requests_per_minute": 1000, "tokens_per_minute": 3000}, 75, 3000),
    ],
)
async def test_fifty_clients_at_two_gateways_never_oversell(
    fleet: Fleet, allowance: dict[str, int], amount: int, limit: int
) -> None:
    gateways = [fleet.limiter(timeout_s=5) for _ in range(2)]
    key = new_identity(**allowance)
    taken = 0

    async def client(number: int) -> None:
        nonlocal taken
        for _ in range(6):
            try:
                reservation = await gateways[number % 2].reserve(key, new_call(25, 50))
            except RateLimited:
                continue
            taken += amount
            await asyncio.sleep(0)
            await reservation.settle(Usage(25, 50), 0.0)

    began = time.monotonic()
    await asyncio.gather(*(client(number) for number in range(50)))
    elapsed_s = time.monotonic() - began
    assert limit <= taken <= limit * (1 + elapsed_s / 60)
    assert [gateway.fallbacks_total for gateway in gateways] == [0, 0]


async def test_fifty_clients_spend_at_most_one_request_more_than_the_budget(fleet: Fleet) -> None:
    gateways = [fleet.limiter(timeout_s=5) for _ in range(2)]
    key, paid = new_identity(budget_usd=1.0), 0.0

    async def client(number: int) -> None:
        nonlocal paid
        for _ in range(4):
            try:
                reservation = await gateways[number % 2].reserve(key, new_call(10_000, 10_000))
            except RateLimited:
                continue
            await asyncio.sleep(0)
            paid += 0.03
            await reservation.settle(Usage(10_000, 10_000), 0.03)

    await asyncio.gather(*(client(number) for number in range(50)))
    assert paid == pytest.approx(1.02)
    error = await refusal(gateways[0], key, new_call(1, 1))
    assert "$1.02" in error.message
    assert error.headers["x-should-retry"] == "false"


async def test_a_key_without_limits_never_asks_redis(fleet: Fleet) -> None:
    limiter = fleet.limiter()
    assert await limiter.reserve(new_identity(), new_call(10**9)) is UNLIMITED


async def test_each_limit_is_refused_with_its_own_words(fleet: Fleet) -> None:
    limiter = fleet.limiter()
    call = new_call(10, 20)
    requests, tokens = new_identity("r", requests_per_minute=1), new_identity("t", tokens_per_minute=40)
    flying, poor = new_identity("c", concurrency=1), new_identity("p", budget_usd=0.00001)
    for identity in (requests, tokens, flying, poor):
        await limiter.reserve(identity, call)
    assert (await refusal(limiter, requests, call)).message.startswith(
        "Rate limit reached for requests per minute: limit 1, left 0"
    )
    error = await refusal(limiter, tokens, call)
    assert (error.type, error.headers["x-ratelimit-limit-tokens"]) == ("tokens", "40")
    assert error.headers["retry-after"] in ("29", "30")
    assert (await refusal(limiter, flying, call)).code == "concurrency"
    assert "set aside" in (await refusal(limiter, poor, call)).message
    assert "601 tokens" in (await refusal(limiter, new_identity("l", tokens_per_minute=600), new_call(601))).message


async def test_tokens_are_settled_to_what_was_used(fleet: Fleet) -> None:
    limiter, key = fleet.limiter(), new_identity(tokens_per_minute=60, requests_per_minute=60)
    reservation = await limiter.reserve(key, new_call(20, 40))
    headers = text(reservation.headers())
    assert (headers["remaining-tokens"], headers["remaining-requests"]) == ("0", "59")
    await reservation.settle(Usage(20, 10), 0.0)
    assert text((await limiter.reserve(key, new_call(10, 10))).headers())["remaining-tokens"] in ("10", "11")
    await (await limiter.reserve(key, new_call(5, 5))).settle(Usage(5, 65), 0.0)
    error = await refusal(limiter, key, new_call(5, 5))
    assert 60 <= int(error.headers["retry-after"]) <= 70


async def test_a_cancelled_settlement_goes_through(fleet: Fleet) -> None:
    limiter, key = fleet.limiter(), new_identity(concurrency=1, budget_usd=1.0)
    for _ in range(5):
        reservation = await eventually(limiter, key, new_call(10, 10))
        settling = asyncio.create_task(reservation.settle(Usage(10, 10), 0.1))
        await asyncio.sleep(0)
        settling.cancel()
        await asyncio.gather(settling, return_exceptions=True)
    await (await eventually(limiter, key, new_call(10, 10))).settle(Usage(10, 10), 0.5)
    assert "$1.00" in (await refusal(limiter, key, new_call(1, 1))).message


async def test_a_cancelled_reservation_keeps_no_lease(fleet: Fleet) -> None:
    limiter, key = fleet.limiter(), new_identity(concurrency=1)
    await (await limiter.reserve(key, new_call())).settle(None, 0.0)
    for hops in range(6):
        asking = asyncio.create_task(limiter.reserve(key, new_call()))
        for _ in range(hops):
            await asyncio.sleep(0)
        asking.cancel()
        (outcome,) = await asyncio.gather(asking, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome.settle(None, 0.0)
    await (await eventually(limiter, key, new_call())).settle(None, 0.0)


async def test_the_requests_of_a_dead_gateway_come_back_when_its_leases_lapse(fleet: Fleet) -> None:
    dead, alive = fleet.limiter(lease_s=1.0), fleet.limiter(lease_s=1.0)
    flying, poor, call = new_identity("c", concurrency=1), new_identity("p", budget_usd=1.0), new_call(200_000, 400_000)
    await alive.reserve(poor, new_call(100_000, 1))
    for identity in (flying, poor):
        await dead.reserve(identity, call)
    await dead.close()
    assert (await refusal(alive, flying, call)).code == "concurrency"
    assert "set aside" in (await refusal(alive, poor, call)).message
    began = time.monotonic()
    await asyncio.gather(eventually(alive, flying, call), eventually(alive, poor, call))
    assert time.monotonic() - began < 10


async def test_leases_last_as_long_as_their_requests_and_no_longer(fleet: Fleet) -> None:
    ours, theirs = fleet.limiter(lease_s=1.0), fleet.limiter(lease_s=1.0)
    key = new_identity(concurrency=1)
    reservation = await ours.reserve(key, new_call())
    await asyncio.sleep(2.5)
    assert (await refusal(theirs, key, new_call())).code == "concurrency"
    await reservation.settle(None, 0.0)
    await asyncio.wait_for(theirs.reserve(key, new_call()), 5)


class HeldBack(RedisStore):
    """Sends one of the scripts only after `go`."""

    def __init__(self, url: str, lua: str) -> None:
        super().__init__(RedisConfig(url=url, timeout_s=5))
        self.lua, self.go = lua, asyncio.Event()

    async def evaluate(self, lua: str, sha: str, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        if lua == self.lua:
            await self.go.wait()
        return await super().evaluate(lua, sha, keys, args)


def limiter_on(store: RedisStore) -> RedisLimiter:
    # Nothing is opened where nothing is spent before the end.
    return RedisLimiter(store, LocalLimiter(LimitsConfig(), SqliteSpend(Database(":memory:")), prices={}))


async def test_a_lease_that_is_renewed_after_its_request_was_settled_is_taken_back(fleet: Fleet) -> None:
    store = HeldBack(fleet.url, RENEW)
    limiter = limiter_on(store)
    reservation = await limiter.reserve(new_identity(concurrency=1), new_call())
    ((lease, demand),) = limiter._leases.items()
    renewing = asyncio.create_task(limiter._renew_some([lease]))
    await asyncio.sleep(0)
    await reservation.settle(None, 0.0)
    store.go.set()
    await renewing
    assert await store.call("ZCARD", limiter._keys(demand)[1]) == 0
    await limiter.close()
    await store.close()


async def test_a_settlement_goes_on_when_its_request_is_cancelled(fleet: Fleet) -> None:
    store = HeldBack(fleet.url, SETTLE)
    limiter, key = limiter_on(store), new_identity(concurrency=1)
    settling = asyncio.create_task((await limiter.reserve(key, new_call())).settle(None, 0.0))
    await asyncio.sleep(0)
    settling.cancel()
    await asyncio.gather(settling, return_exceptions=True)
    assert settling.cancelled()
    assert (await refusal(limiter, key, new_call())).code == "concurrency"
    store.go.set()
    await eventually(limiter, key, new_call())
    await limiter.close()
    await store.close()


async def test_every_key_in_redis_expires_and_none_names_a_customer(fleet: Fleet) -> None:
    limiter, store = fleet.limiter(), fleet.store(timeout_s=5)
    key = new_identity("customer", requests_per_minute=9, tokens_per_minute=900, concurrency=9, budget_usd=1.0)
    settled, _ = await limiter.reserve(key, new_call(1, 1)), await limiter.reserve(key, new_call(1, 1))
    await settled.settle(Usage(1, 1), 0.1)
    names = await store.call("KEYS", "*")
    assert len(names) == 4
    for name in names:
        assert name.startswith(b"baton:limits:{")
        assert b"customer" not in name
        assert await store.call("PTTL", name) > 0


async def test_a_redis_that_lost_its_memory_does_not_give_budgets_anew(fleet: Fleet, tmp_path: Path) -> None:
    limiter, store = fleet.limiter(path=str(tmp_path / "baton.db")), fleet.store(timeout_s=5)
    key = new_identity(budget_usd=1.0)
    await (await limiter.reserve(key, new_call(1, 1))).settle(Usage(1, 1), 0.6)
    running = await limiter.reserve(key, new_call(1, 1))
    await store.call("FLUSHALL")
    await running.settle(Usage(1, 1), 0.3)
    assert "$0.90" in (await refusal(limiter, new_identity(budget_usd=0.8), new_call(1, 1))).message
    await store.call("FLUSHALL")
    await (await limiter.reserve(key, new_call(1, 1))).settle(Usage(1, 1), 0.2)
    assert "$1.10" in (await refusal(limiter, key, new_call(1, 1))).message
