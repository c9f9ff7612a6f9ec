"""Limits kept in the memory of one process.

Requests and tokens per minute follow the generic cell rate algorithm: of each limit one number is kept, the moment at which all
of it will be left again. A limit refills continuously, so there are no windows and no edges: never more than the limit at once,
and in t minutes never more than (1 + t) times the limit. What was used beyond its reservation is a debt that later requests
wait for.

Source: ITU-T I.371, annex A (virtual scheduling).
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic, time

from msgspec.structs import replace

from backends.types import Usage
from gateway.call import Call
from gateway.identity import Identity
from gateway.limits.config import LimitsConfig
from gateway.limits.demand import Demand, demand_of, is_unlimited
from gateway.limits.levels import WINDOW_S, Level, level_headers
from gateway.limits.limiter import UNLIMITED, Reservation
from gateway.limits.prices import Prices
from gateway.limits.refusals import Standing, judge, refusal
from gateway.limits.spend import SpendStore

_EVICTION_TRIES = 8


class Account:
    """What one key has taken. `requests_full_at` and `tokens_full_at` are monotonic seconds."""

    __slots__ = ("held_usd", "in_flight", "requests_full_at", "tokens_full_at")

    def __init__(self) -> None:
        self.requests_full_at = 0.0
        self.tokens_full_at = 0.0
        self.in_flight = 0
        self.held_usd = 0.0


class LocalLimiter:
    """A `Limiter` for one process.

    Args:
        spend: closed with the limiter.
        prices: for the money that requests hold while they run.
        share: the part of every limit that is this process's to give; budgets are shared through `spend` instead.
        clock: monotonic seconds.
        now: Unix seconds, for the periods of budgets.
    """

    def __init__(
        self,
        config: LimitsConfig,
        spend: SpendStore,
        *,
        prices: Prices,
        share: float = 1.0,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time,
    ) -> None:
        self.config, self.spend, self.prices, self.now = config, spend, prices, now
        self._share, self._clock = share, clock
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    def __len__(self) -> int:
        """The number of keys that are remembered."""
        return len(self._accounts)

    async def reserve(self, identity: Identity, call: Call) -> Reservation:
        """Take what a call needs, all or nothing. Raises `RateLimited`."""
        if is_unlimited(identity.allowance):
            return UNLIMITED
        demand = demand_of(identity, call, self.config, self.prices, self.now())
        if demand.is_too_large:
            raise refusal("too_large", demand, Standing())
        if demand.budget and self.spend.known(demand.key_id, demand.budget) is None:
            await self.spend.load(demand.key_id, demand.budget)
        return self._take(self._scaled(demand))

    async def close(self) -> None:
        """Store what was spent."""
        await self.spend.close()

    def settle(self, account: Account, demand: Demand, usage: Usage | None, cost_usd: float) -> None:
        """Charge what a request used and give back the rest."""
        account.in_flight -= 1
        # Sums of fractions leave crumbs; without requests in flight nothing is held.
        account.held_usd = account.held_usd - demand.estimate_usd if account.in_flight else 0.0
        if demand.tokens_per_minute:
            extra = (usage.total_tokens if usage is not None else 0) - demand.tokens
            base = max(account.tokens_full_at, self._clock()) if extra > 0 else account.tokens_full_at
            account.tokens_full_at = base + extra * WINDOW_S / demand.tokens_per_minute
        if demand.budget and cost_usd:
            self.spend.add(demand.key_id, demand.budget, cost_usd)

    def _scaled(self, demand: Demand) -> Demand:
        """This process's share of the limits."""
        if self._share == 1.0:
            return demand
        return replace(
            demand,
            requests_per_minute=demand.requests_per_minute * self._share,
            tokens_per_minute=demand.tokens_per_minute * self._share,
            concurrency=max(1, int(demand.concurrency * self._share)) if demand.concurrency else 0,
        )

    def _take(self, demand: Demand) -> "LocalReservation":
        account, now = self._account(demand.key_id), self._clock()
        requests = _level(demand.requests_per_minute, account.requests_full_at, now)
        tokens = _level(demand.tokens_per_minute, account.tokens_full_at, now)
        standing = Standing(
            requests=requests,
            tokens=tokens,
            in_flight=account.in_flight,
            spent_usd=(self.spend.known(demand.key_id, demand.budget) or 0.0) if demand.budget else 0.0,
            held_usd=account.held_usd,
        )
        verdict = judge(demand, standing)
        if verdict:
            raise refusal(verdict, demand, standing)
        if requests is not None:
            account.requests_full_at = max(account.requests_full_at, now) + WINDOW_S / requests.limit
            requests = requests.minus(1)
        if tokens is not None:
            account.tokens_full_at = max(account.tokens_full_at, now) + demand.tokens * WINDOW_S / tokens.limit
            tokens = tokens.minus(demand.tokens)
        account.in_flight += 1
        account.held_usd += demand.estimate_usd
        return LocalReservation(self, account, demand, requests, tokens)

    def _account(self, key_id: str) -> Account:
        account = self._accounts.get(key_id)
        if account is None:
            if len(self._accounts) >= self.config.max_keys:
                self._forget_one()
            account = self._accounts[key_id] = Account()
        else:
            self._accounts.move_to_end(key_id)
        return account

    def _forget_one(self) -> None:
        """Forget the key that was not used for longest, of those with nothing in flight."""
        for _ in range(_EVICTION_TRIES):
            key_id, account = next(iter(self._accounts.items()))
            if not account.in_flight:
                del self._accounts[key_id]
                return
            self._accounts.move_to_end(key_id)


class LocalReservation:
    """What a request has taken from an account; `requests` and `tokens` are the levels after that."""

    __slots__ = ("_account", "_demand", "_limiter", "_requests", "_tokens")

    def __init__(
        self, limiter: LocalLimiter, account: Account, demand: Demand, requests: Level | None, tokens: Level | None
    ) -> None:
        self._limiter, self._account, self._demand = limiter, account, demand
        self._requests, self._tokens = requests, tokens

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The `x-ratelimit-*` headers."""
        return [(name.encode(), value.encode()) for name, value in level_headers(self._requests, self._tokens)]

    async def settle(self, usage: Usage | None, cost_usd: float) -> None:
        """Charge what was used and give back the rest."""
        self._limiter.settle(self._account, self._demand, usage, cost_usd)


def _level(limit: float, full_at: float, now: float) -> Level | None:
    return Level(limit, limit - max(0.0, full_at - now) * limit / WINDOW_S) if limit else None
