"""What whole calls came to, beyond one endpoint: retries, fallbacks, money, tokens of keys, and refusals by limits."""

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.call import Trail
from gateway.telemetry.blame import known_code
from gateway.telemetry.figures import PREFIX, Amounts, add, counter

MAX_KEYS = 1000
"""Keys with a label of their own; those that come later are counted together as `other`."""

ANONYMOUS_KEY = "anonymous"
OTHER_KEY = "other"

_LIMITS = {
    ("rate_limit_exceeded", "requests"): "requests",
    ("rate_limit_exceeded", "tokens"): "tokens",
    ("concurrency", "requests"): "concurrency",
    ("insufficient_quota", "insufficient_quota"): "budget",
}


class SettledFamilies(Collector):
    """Counts, and exports the counts."""

    def __init__(self) -> None:
        self._retries = 0
        self._fallbacks: Amounts = {}
        self._cost_usd: Amounts = {}
        self._key_tokens: dict[str, int] = {}
        self._limited: Amounts = {}

    def settle(self, model: str, trail: Trail, key_id: str, tokens: int) -> None:
        """Count a call that has ended. `model` is the public name, `tokens` are prompt and answer together."""
        if tokens:
            counts = self._key_tokens
            if key_id not in counts:
                key_id = self._label(key_id)
            counts[key_id] = counts.get(key_id, 0) + tokens
        if trail.attempts > 1:
            self._retries += trail.attempts - 1
        if trail.fallback:
            add(self._fallbacks, (model, known_code(trail.reason or None)))
        if trail.cost_usd:
            add(self._cost_usd, (model,), trail.cost_usd)

    def refused(self, code: str | None, kind: str) -> None:
        """Count an error with the status 429, by its code and type, if a limit of a key is behind it."""
        limit = _LIMITS.get((code or "", kind))
        if limit is not None:
            add(self._limited, (limit,))

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        keys: Amounts = {(key,): count for key, count in self._key_tokens.items()}
        text = "Requests that a limit of their key refused."
        yield counter(PREFIX + "retries", "Attempts beyond the first one of each request.", (), {(): self._retries})
        yield counter(PREFIX + "fallbacks", "Requests that another model answered.", ("model", "reason"), self._fallbacks)
        yield counter(PREFIX + "cost_usd", "What requests cost, in US dollars.", ("model",), self._cost_usd)
        yield counter(PREFIX + "key_tokens", "Tokens of the prompts and answers of each key.", ("key",), keys)
        yield counter(PREFIX + "limited", text, ("kind",), self._limited)

    def _label(self, key_id: str) -> str:
        if not key_id:
            return ANONYMOUS_KEY
        return key_id if len(self._key_tokens) < MAX_KEYS else OTHER_KEY
