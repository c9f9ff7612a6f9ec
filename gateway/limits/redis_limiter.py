"""Limits that several gateways keep together in Redis; where Redis does not answer, this gateway's own share decides.

Redis decides one request in one round trip and settles it in another. Its own clock counts, so gateways need not agree on the
time. Requests in flight hold leases, which this process renews while they run.

No request fails because of Redis. While it is down the fallback limiter decides, `fallbacks_total` counts how often, and what
is spent meanwhile is sent later, and charged once however often it is sent. Every cost is also written to the fallback's spend
store, from which a Redis that lost its memory starts, so it does not give budgets anew. A reservation that timed out may have
taken effect all the same: its request and its tokens come back within a minute, its lease with what that held after `lease_s`.
"""

import asyncio
from collections.abc import Coroutine
from hashlib import blake2b
from itertools import count
from secrets import token_hex
from typing import Any, cast

import msgspec

from backends.types import Usage
from gateway.call import Call
from gateway.identity import Identity
from gateway.limits.demand import Demand, demand_of, is_unlimited
from gateway.limits.levels import Level, level_headers
from gateway.limits.limiter import UNLIMITED, Reservation
from gateway.limits.local import LocalLimiter
from gateway.limits.owed import Owed
from gateway.limits.redis_scripts import RENEW, RESERVE, SETTLE
from gateway.limits.refusals import Standing, Verdict, refusal
from gateway.store.errors import StoreDown
from gateway.store.redis import RedisStore

_DAY_S = 86_400
_SPEND_TTL_S = {"day": 3 * _DAY_S, "month": 40 * _DAY_S, "total": 400 * _DAY_S}
_RENEWALS_PER_LEASE = 3
_RENEWED_AT_ONCE = 100


class RedisLimiter:
    """A `Limiter`.

    Args:
        redis: not closed with the limiter.
        fallback: decides alone while Redis is down; also has the settings and prices. Closed with the limiter.
    """

    def __init__(self, redis: RedisStore, fallback: LocalLimiter) -> None:
        self.fallbacks_total = 0
        self._redis, self._fallback, self._spend = redis, fallback, fallback.spend
        self._reserve, self._settle, self._renew = (redis.script(lua) for lua in (RESERVE, SETTLE, RENEW))
        self._lease_s = fallback.config.lease_s
        self._process, self._numbers = token_hex(8), count()
        self._leases: dict[str, Demand] = {}
        self._owed = Owed(fallback.config.max_keys)
        self._is_paying = False
        self._renewer: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_shared(self) -> bool:
        """Whether Redis decides; else this gateway's own share does."""
        return self._redis.available

    async def reserve(self, identity: Identity, call: Call) -> Reservation:
        """Take what a call needs, all or nothing. Raises `RateLimited`."""
        if is_unlimited(identity.allowance):
            return UNLIMITED
        config, prices = self._fallback.config, self._fallback.prices
        demand = demand_of(identity, call, config, prices, self._fallback.now())
        if demand.is_too_large:
            raise refusal("too_large", demand, Standing())
        if demand.budget and self._spend.known(demand.key_id, demand.budget) is None:
            await self._spend.load(demand.key_id, demand.budget)
        lease = f"{self._process}.{next(self._numbers)}|{demand.estimate_usd!r}" if demand.concurrency or demand.budget else ""
        try:
            verdict, standing = await self._ask(demand, lease)
        except StoreDown:
            self.fallbacks_total += 1
            return _FallbackReservation(self, await self._fallback.reserve(identity, call), demand, lease)
        if self._owed and not self._is_paying:
            self._run(self._pay())
        if verdict:
            raise refusal(verdict, demand, standing)
        if lease:
            self._hold(lease, demand)
        return _SharedReservation(self, demand, lease, standing)

    async def close(self) -> None:
        """Wait for what is being settled and store what was spent. May be called twice."""
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
            self._renewer = None
        await asyncio.gather(*self._tasks)
        if not self._is_paying:
            await self._pay()
        await self._fallback.close()

    async def settle(self, demand: Demand, lease: str, usage: Usage | None, cost_usd: float) -> None:
        """Settle a request that Redis let in; goes through even if the caller is cancelled meanwhile."""
        self._leases.pop(lease, None)
        extra = (usage.total_tokens if usage is not None else 0) - demand.tokens if demand.tokens_per_minute else 0
        if lease or extra:
            await asyncio.shield(self._run(self._send_settlement(demand, lease, extra, cost_usd)))

    def owe(self, demand: Demand, lease: str, usd: float) -> None:
        """Remember money that Redis could not be told of."""
        if demand.budget and usd:
            self._owed.add(lease, demand, usd)

    async def _ask(self, demand: Demand, lease: str) -> tuple[Verdict, Standing]:
        limits = (demand.requests_per_minute, demand.tokens_per_minute, demand.tokens, demand.concurrency)
        money = (demand.budget_usd, demand.estimate_usd, self._recorded(demand))
        try:
            answer = await self._reserve(
                self._keys(demand), _packed(*limits, *money, lease, self._lease_s, _SPEND_TTL_S[demand.period])
            )
        except asyncio.CancelledError:
            if lease:
                self._run(self._send_settlement(demand, lease, 0, 0.0))
            raise
        return _read_answer(answer, demand)

    async def _send_settlement(self, demand: Demand, lease: str, extra_tokens: int, cost_usd: float) -> None:
        try:
            await self._tell(demand, lease, extra_tokens, cost_usd)
        except StoreDown:
            self.owe(demand, lease, cost_usd)
        if demand.budget and cost_usd:
            # Only now, so that Redis never starts from a record that holds what it is about to be told.
            self._spend.add(demand.key_id, demand.budget, cost_usd)

    async def _tell(self, demand: Demand, lease: str, extra_tokens: int, cost_usd: float) -> None:
        keys = (*self._keys(demand), self._redis.key("limits", _account(demand), "charged", lease))
        limits = (demand.tokens_per_minute, extra_tokens, demand.estimate_usd)
        money = (cost_usd if demand.budget else 0.0, self._recorded(demand), _SPEND_TTL_S[demand.period])
        await self._settle(keys, _packed(*limits, lease, *money))

    async def _pay(self) -> None:
        """Send what is owed, until that fails again."""
        self._is_paying = True
        try:
            for lease, demand, usd in self._owed:
                await self._tell(demand, lease, 0, usd)
                self._owed.remove(lease)
        except StoreDown:
            pass  # the next answer of Redis begins it again
        finally:
            self._is_paying = False

    def _recorded(self, demand: Demand) -> float:
        """What a Redis without memory should begin with: all that this gateway knows of and Redis has been told."""
        known = self._spend.known(demand.key_id, demand.budget)
        return max(0.0, known - self._owed.total(demand)) if known else 0.0

    def _keys(self, demand: Demand) -> tuple[str, str, str]:
        account, key = _account(demand), self._redis.key
        return key("limits", account), key("limits", account, "leases"), key("limits", account, "spent", demand.budget)

    def _hold(self, lease: str, demand: Demand) -> None:
        self._leases[lease] = demand
        if self._renewer is None or self._renewer.done():
            self._renewer = asyncio.get_running_loop().create_task(self._renew_leases())

    async def _renew_leases(self) -> None:
        """Renew what is in flight, as long as anything is."""
        while self._leases:
            await asyncio.sleep(self._lease_s / _RENEWALS_PER_LEASE)
            by_key: dict[str, list[str]] = {}
            for lease, demand in self._leases.items():
                by_key.setdefault(demand.key_id, []).append(lease)
            for leases in by_key.values():
                for start in range(0, len(leases), _RENEWED_AT_ONCE):
                    await self._renew_some(leases[start : start + _RENEWED_AT_ONCE])

    async def _renew_some(self, leases: list[str]) -> None:
        demands = {lease: demand for lease in leases if (demand := self._leases.get(lease)) is not None}
        if not demands:
            return
        try:
            await self._renew(self._keys(next(iter(demands.values()))), _packed(self._lease_s, *demands))
        except StoreDown:
            return
        for lease, demand in demands.items():
            if lease not in self._leases:  # it was settled meanwhile, perhaps before it was renewed
                await self._send_settlement(demand, lease, 0, 0.0)

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _SharedReservation:
    """What Redis let in."""

    __slots__ = ("_demand", "_lease", "_limiter", "_standing")

    def __init__(self, limiter: RedisLimiter, demand: Demand, lease: str, standing: Standing) -> None:
        self._limiter, self._demand, self._lease, self._standing = limiter, demand, lease, standing

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The `x-ratelimit-*` headers."""
        headers = level_headers(self._standing.requests, self._standing.tokens)
        return [(name.encode(), value.encode()) for name, value in headers]

    async def settle(self, usage: Usage | None, cost_usd: float) -> None:
        """Charge what was used and give back the rest."""
        await self._limiter.settle(self._demand, self._lease, usage, cost_usd)


class _FallbackReservation:
    """What was let in while Redis was down; its cost is sent later."""

    __slots__ = ("_demand", "_inner", "_lease", "_limiter")

    def __init__(self, limiter: RedisLimiter, inner: Reservation, demand: Demand, lease: str) -> None:
        self._limiter, self._inner, self._demand, self._lease = limiter, inner, demand, lease

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The `x-ratelimit-*` headers of this gateway's share."""
        return self._inner.headers()

    async def settle(self, usage: Usage | None, cost_usd: float) -> None:
        """Charge what was used and give back the rest."""
        await self._inner.settle(usage, cost_usd)
        self._limiter.owe(self._demand, self._lease, cost_usd)


def _packed(*args: str | float) -> tuple[bytes]:
    return (msgspec.msgpack.encode(args),)


def _account(demand: Demand) -> str:
    """The part of key names that is a hash tag, which keeps an account on one node of a cluster. Key ids stay out of Redis."""
    return "{" + blake2b(demand.key_id.encode(), digest_size=16).hexdigest() + "}"


def _read_answer(answer: list[Any], demand: Demand) -> tuple[Verdict, Standing]:
    verdict, requests_left, tokens_left, in_flight, spent, held = answer
    requests, tokens = demand.requests_per_minute, demand.tokens_per_minute
    standing = Standing(
        requests=Level(requests, float(requests_left)) if requests else None,
        tokens=Level(tokens, float(tokens_left)) if tokens else None,
        in_flight=int(in_flight),
        spent_usd=float(spent),
        held_usd=float(held),
    )
    return cast(Verdict, verdict.decode()), standing
