"""What each key used today, for a dashboard. In memory: it begins again at midnight UTC, and with every process."""

from collections.abc import Callable
from time import time

from msgspec import Struct

MAX_KEYS = 1000
"""Keys that are told apart; those that come later on the same day are counted together."""

_DAY_S = 86_400


class KeyUsage(Struct, kw_only=True):
    """What one key used. Both `key_id` and `name` are empty for all keys beyond the first `MAX_KEYS` together.

    `tokens` are those of prompts and answers, `cost_usd` is by the prices of the configuration.
    """

    key_id: str
    name: str
    requests: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


class UsageToday:
    """The count of this process. Written and read by the event loop alone.

    Args:
        now: Unix seconds.
    """

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._now = now
        self._keys: dict[str, KeyUsage] = {}
        self._since = now()
        self._ends_at = _next_midnight(self._since)
        self._others = KeyUsage(key_id="", name="")

    @property
    def since(self) -> float:
        """When the count began (Unix seconds): the last midnight, or the start of the process."""
        self._turn_the_day()
        return self._since

    def add(self, key_id: str, name: str, tokens: int, cost_usd: float) -> None:
        """Count a request that has ended. Where no key is asked for, `key_id` is empty and `name` says so."""
        self._turn_the_day()
        usage = self._keys.get(key_id) or self._begin(key_id, name)
        usage.requests += 1
        usage.tokens += tokens
        usage.cost_usd += cost_usd

    def list(self) -> list[KeyUsage]:
        """All keys of today, those with the most tokens first; the sum of uncounted ones comes last."""
        self._turn_the_day()
        keys = sorted(self._keys.values(), key=lambda usage: (-usage.tokens, -usage.requests, usage.key_id))
        return [*keys, self._others] if self._others.requests else keys

    def _begin(self, key_id: str, name: str) -> KeyUsage:
        if len(self._keys) >= MAX_KEYS:
            return self._others
        usage = self._keys[key_id] = KeyUsage(key_id=key_id, name=name)
        return usage

    def _turn_the_day(self) -> None:
        now = self._now()
        if now >= self._ends_at:
            self._since = _next_midnight(now) - _DAY_S
            self._ends_at = self._since + _DAY_S
            self._keys = {}
            self._others = KeyUsage(key_id="", name="")


def _next_midnight(now: float) -> float:
    return (now // _DAY_S + 1) * _DAY_S
