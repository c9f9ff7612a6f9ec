"""How full a limit per minute is, and how that is told to clients."""

import math

from msgspec import Struct

WINDOW_S = 60.0

# Sums of fractions of a second only come close to what they mean: this part of a limit counts as nothing.
_ROUNDING = 1e-9


class Level(Struct, frozen=True):
    """What is left of `limit` (per minute); below 0 when more was used than had been reserved."""

    limit: float
    left: float

    def has(self, amount: float) -> bool:
        """Whether `amount` may be taken now. What is more than the whole limit may be taken when all of it is left."""
        return self.left + self.limit * _ROUNDING >= min(amount, self.limit)

    def wait_s(self, amount: float) -> float:
        """The time until `amount` may be taken, if nothing else is; 0 for now."""
        return max(0.0, (min(amount, self.limit) - self.left) * WINDOW_S / self.limit)

    def minus(self, amount: float) -> "Level":
        """The level after `amount` was taken."""
        return Level(self.limit, self.left - amount)


def level_headers(requests: Level | None, tokens: Level | None) -> list[tuple[str, str]]:
    """The `x-ratelimit-*` headers of the limits that there are. `reset` says when all of a limit is left again."""
    headers = []
    for name, level in (("requests", requests), ("tokens", tokens)):
        if level is not None:
            headers += [
                (f"x-ratelimit-limit-{name}", str(math.floor(level.limit))),
                (f"x-ratelimit-remaining-{name}", str(max(0, math.floor(level.left + level.limit * _ROUNDING)))),
                (f"x-ratelimit-reset-{name}", duration(level.wait_s(level.limit))),
            ]
    return headers


def duration(seconds: float) -> str:
    """Spell a duration as OpenAI does (`12ms`, `1.5s`, `6m0s`), rounded up to milliseconds, from a minute on to seconds."""
    milliseconds = math.ceil(round(seconds * 1000, 3))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:g}s"
    minutes, rest = divmod(math.ceil(milliseconds / 1000), 60)
    return f"{minutes}m{rest}s"
