"""Gives a new deployment a growing part of a route's conversations, and takes them all away when it does worse than the rest.

A conversation stays on one side while the percentage grows. Both sides are compared over the same time, and over at most 4,096
answers of the canary, so that a good past does not hide a bad present. A difference counts when it exceeds its limit by 4.5
standard errors: the comparison is made again and again, and each time chance has another try.
"""

import logging
from collections.abc import Callable
from random import Random
from typing import Literal

from msgspec import Struct

from gateway.call import Call
from gateway.routing.config import CanaryConfig
from gateway.routing.hashing import mix, stable_hash
from gateway.routing.samples import Reservoir, Samples, excess, p95, tail_excess

logger = logging.getLogger(__name__)

CanaryState = Literal["running", "paused", "promoted", "rolled_back"]

_BUCKETS = 10_000
_CERTAINTY = 4.5
_MIN_SAMPLES = 20
_MIN_TIMES = 50
_COMPARE_EVERY = 25
_MAX_ATTEMPTS = 4096


class CanaryView(Struct, frozen=True, kw_only=True):
    """A canary at one moment. Rates and attempts are those of the present comparison; p95 are in seconds, 0 when unknown."""

    deployment: str
    state: CanaryState
    percent: float
    reason: str
    attempts: int
    error_rate: float
    ttft_p95_s: float
    itl_p95_s: float
    baseline_attempts: int
    baseline_error_rate: float
    baseline_ttft_p95_s: float
    baseline_itl_p95_s: float


class Canary:
    """Of one route.

    Attributes:
        state: `running` climbs the steps by itself; `paused` stays, but is still rolled back; `promoted` has everything, and
            nothing left to be compared with; `rolled_back` has nothing until somebody says otherwise.
        percent: of the conversations that go to the canary.
        reason: why it was rolled back.
        trial: what the canary did.
        baseline: what the other deployments of the route did meanwhile.
    """

    def __init__(self, route: str, config: CanaryConfig, clock: Callable[[], float], random: Random) -> None:
        self.config = config
        self.trial = Samples(random, self._on_trial)
        self.baseline = Samples(random, self._on_baseline)
        self.state: CanaryState = "paused"
        self.percent = 0.0
        self.reason = ""
        self._route = route
        self._seed = stable_hash(route)
        self._clock = clock
        self._run_at(config.steps[0])

    def takes(self, call: Call) -> bool:
        """Whether the conversation of this call belongs to the canary's part."""
        if self.percent in (0.0, 100.0):
            return self.percent == 100.0
        return mix(stable_hash(call.session or call.id), self._seed) % _BUCKETS < self.percent * (_BUCKETS / 100)

    def promote(self) -> None:
        """Give it everything."""
        self._begin("promoted", 100.0)

    def rollback(self, reason: str = "An operator rolled it back.") -> None:
        """Give it nothing, at once."""
        self._begin("rolled_back", 0.0)
        self.reason = reason
        logger.warning("route %s: the canary %s is rolled back: %s", self._route, self.config.deployment, reason)

    def pause(self) -> None:
        """Climb no further."""
        if self.state == "running":
            self.state = "paused"

    def resume(self) -> None:
        """Climb on, from the step that is next to the present percentage; from the first one after a rollback."""
        if self.state in ("paused", "rolled_back"):
            self._run_at(self.percent or self.config.steps[0])

    def set_percent(self, percent: float) -> None:
        """Give it a fixed part, and stay there.

        Raises:
            ValueError: not within 0 to 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percent must be between 0 and 100 (it is {percent:g})")
        self._begin("paused", percent)

    def view(self) -> CanaryView:
        """Describe it."""
        trial, baseline = self.trial, self.baseline
        return CanaryView(
            deployment=self.config.deployment,
            state=self.state,
            percent=self.percent,
            reason=self.reason,
            attempts=trial.attempts,
            error_rate=trial.error_rate,
            ttft_p95_s=_p95_or_0(trial.ttft),
            itl_p95_s=_p95_or_0(trial.itl),
            baseline_attempts=baseline.attempts,
            baseline_error_rate=baseline.error_rate,
            baseline_ttft_p95_s=_p95_or_0(baseline.ttft),
            baseline_itl_p95_s=_p95_or_0(baseline.itl),
        )

    def _begin(self, state: CanaryState, percent: float) -> None:
        self.state = state
        self.percent = percent
        self.reason = ""
        self._step_began_at = self._clock()
        self._step_attempts = 0
        self._compare_anew()

    def _run_at(self, percent: float) -> None:
        self._begin("running" if percent < 100 else "promoted", percent)

    def _compare_anew(self) -> None:
        self.trial.clear()
        self.baseline.clear()

    def _on_baseline(self, failed: bool) -> None:
        """Nothing follows from the baseline alone."""

    def _on_trial(self, failed: bool) -> None:
        if self.state not in ("running", "paused"):
            return
        self._step_attempts += 1
        fault = self._find_more_errors() if failed else None
        is_due = self.trial.attempts % _COMPARE_EVERY == 0
        if fault is None and is_due:
            fault = self._find_slowness()
        if fault is not None:
            self.rollback(fault)
        elif is_due and self._may_climb():
            self._climb()
        if self.trial.attempts >= _MAX_ATTEMPTS:
            self._compare_anew()

    def _find_more_errors(self) -> str | None:
        trial, baseline = self.trial, self.baseline
        if trial.attempts < _MIN_SAMPLES or baseline.attempts < _MIN_SAMPLES:
            return None
        allowed = min(1.0, baseline.error_rate + self.config.max_error_increase)
        if excess(trial.error_rate, trial.attempts, allowed, baseline.attempts) <= _CERTAINTY:
            return None
        return (
            f"{trial.failures} of {trial.attempts} attempts failed ({trial.error_rate:.1%}), "
            f"{baseline.failures} of {baseline.attempts} elsewhere ({baseline.error_rate:.1%})."
        )

    def _find_slowness(self) -> str | None:
        for what, trial, baseline, ratio in self._times():
            if tail_excess(trial.values, baseline.values, ratio) > _CERTAINTY:
                slow, usual = p95(trial.values), p95(baseline.values)
                return f"The p95 of the {what} is {slow:.4g} s, {usual:.4g} s elsewhere; {ratio:g} times as much is allowed."
        return None

    def _times(self) -> list[tuple[str, Reservoir, Reservoir, float]]:
        """Both kinds of times, where there are enough to compare."""
        pairs = [
            ("time to the first token", self.trial.ttft, self.baseline.ttft, self.config.max_ttft_ratio),
            ("time between tokens", self.trial.itl, self.baseline.itl, self.config.max_itl_ratio),
        ]
        return [pair for pair in pairs if min(len(pair[1].values), len(pair[2].values)) >= _MIN_TIMES]

    def _may_climb(self) -> bool:
        """Whether the step has lasted long enough and everything is within its limits, by chance or not."""
        config, trial, baseline = self.config, self.trial, self.baseline
        if self.state != "running" or self._step_attempts < config.min_samples or baseline.attempts < _MIN_SAMPLES:
            return False
        if self._clock() - self._step_began_at < config.hold_s:
            return False
        if trial.error_rate > baseline.error_rate + config.max_error_increase:
            return False
        return all(p95(mine.values) <= ratio * p95(theirs.values) for _, mine, theirs, ratio in self._times())

    def _climb(self) -> None:
        higher = next((step for step in self.config.steps if step > self.percent), None)
        if higher is not None:
            self._run_at(higher)
            logger.info("route %s: the canary %s now gets %g %%", self._route, self.config.deployment, self.percent)


def _p95_or_0(times: Reservoir) -> float:
    return p95(times.values) if times.values else 0.0
