"""What is measured, and what is wanted of it. Plain data, and the arithmetic that turns two servers' figures into a ratio."""

import statistics
from collections.abc import Callable
from typing import Any

from msgspec import Struct

Run = dict[str, Any]
"""Figures of one server in one repetition: by case what `benchmarks.load` printed, under `own` what only Baton reports."""


class Case(Struct, frozen=True, kw_only=True):
    """One load: closed-loop streaming users with random prompts, 64 new tokens each."""

    name: str
    users: int
    requests: int
    quick_requests: int
    prompt_words: int = 100
    shared_prefix: int = 0


CASES = (
    Case(name="one user", users=1, requests=8, quick_requests=4),
    Case(name="4 users", users=4, requests=16, quick_requests=8),
    Case(name="8 users", users=8, requests=24, quick_requests=8),
    Case(name="16 users", users=16, requests=32, quick_requests=16),
    Case(name="4 users, shared prefix", users=4, requests=16, quick_requests=8, shared_prefix=600),
)
STEP_CASE = "8 users"
"""The case during which the work per batch step is measured: every slot is busy."""


class Figure(Struct, frozen=True, kw_only=True):
    """A number both servers have. `at_most` and `at_least` bound Baton's divided by the peer's."""

    title: str
    unit: str
    pick: Callable[[Run], float]
    at_most: float | None = None
    at_least: float | None = None

    def ratios(self, ours: list[Run], peers: list[Run]) -> list[float]:
        """Divide run by run: neighbours in time shared the machine's mood."""
        return [self.pick(a) / self.pick(b) for a, b in zip(ours, peers, strict=True)]

    def holds(self, ratio: float) -> bool:
        """Say whether a ratio is what is wanted."""
        return (self.at_most is None or ratio <= self.at_most) and (self.at_least is None or ratio >= self.at_least)


class OwnFigure(Struct, frozen=True, kw_only=True):
    """A number that only Baton has, with an absolute bound."""

    title: str
    unit: str
    key: str
    at_most: float


FIGURES = (
    Figure(title="inter-token latency p50, c=1", unit="ms", pick=lambda run: run["one user"]["itl_ms"]["p50"], at_most=1.05),
    Figure(title="time to first token p50, c=1", unit="ms", pick=lambda run: run["one user"]["ttft_ms"]["p50"], at_most=1.05),
    Figure(title="output, c=4", unit="tok/s", pick=lambda run: run["4 users"]["tok_s"], at_least=1.0),
    Figure(title="output, c=8", unit="tok/s", pick=lambda run: run["8 users"]["tok_s"], at_least=1.0),
    Figure(title="output, c=16", unit="tok/s", pick=lambda run: run["16 users"]["tok_s"], at_least=1.0),
    Figure(
        title="time to first token p95, c=4, 600 shared words",
        unit="ms",
        pick=lambda run: run["4 users, shared prefix"]["ttft_ms"]["p95"],
        at_most=0.5,
    ),
)
OWN_FIGURES = (
    OwnFigure(title="Python work per batch step, 8 slots", unit="ms", key="step_host_ms", at_most=0.3),
    OwnFigure(title="gateway process, idle", unit="MB", key="gateway_rss_mb", at_most=120.0),
    OwnFigure(title="ready after start", unit="s", key="ready_s", at_most=5.0),
)


def median(values: list[float]) -> float:
    """Take the middle of what several repetitions gave."""
    return statistics.median(values)
