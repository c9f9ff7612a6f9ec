"""Random lives of a breaker: its books agree with a plain list of calls, and it can always come back."""

from collections import deque
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.routing.breaker import Breaker
from gateway.routing.config import BreakerConfig
from gateway.routing.window import Window


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60), st.integers(1, 20))
def test_the_window_counts_what_a_list_would(steps: list[tuple[float, bool]], seconds: int) -> None:
    window, now, ends = Window(seconds), 0.0, deque[tuple[int, bool]]()
    for gap, failed in steps:
        now += gap
        window.add(now, failed=failed)
        ends.append((int(now), failed))
        while ends[0][0] <= int(now) - seconds:
            ends.popleft()
        assert (window.calls, window.failures) == (len(ends), sum(bad for _, bad in ends))


def test_a_long_silence_costs_no_more_than_a_short_one() -> None:
    window = Window(60)
    window.add(1.0, failed=True)
    window.add(1e15, failed=False)
    assert (window.calls, window.failures) == (1, 0)


class BreakerLife(RuleBasedStateMachine):
    """Begins and ends calls in any order while time passes."""

    @initialize(probes=st.integers(1, 5), close_below=st.sampled_from([0.0, 0.3]), in_a_row=st.integers(0, 4))
    def start(self, probes: int, close_below: float, in_a_row: int) -> None:
        config = BreakerConfig(
            window_s=5, min_calls=6, half_open_probes=probes, close_below=close_below, consecutive_failures=in_a_row
        )
        self.breaker, self.probes, self.now = Breaker(config, Random(3)), probes, 50.0
        self.running: list[tuple[int, float, bool]] = []

    @rule()
    def begin(self) -> None:
        if self.breaker.allows(self.now):
            state = self.breaker.state(self.now)
            self.running.append((self.breaker.begin(self.now), self.now, state == "half_open"))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), end=st.sampled_from(["answered", "succeeded", "failed", "cancelled"]))
    def end(self, data: st.DataObject, end: str) -> None:
        entry = data.draw(st.sampled_from(self.running))
        if end == "answered":
            self.breaker.answered(entry[0], self.now)
            return
        self.running.remove(entry)
        if end == "cancelled":
            self.breaker.cancelled(entry[0])
        else:
            getattr(self.breaker, end)(entry[0], self.now)

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def recover(self) -> None:
        self.breaker.recover()

    @invariant()
    def an_open_breaker_lets_nothing_pass(self) -> None:
        if hasattr(self, "breaker") and self.breaker.state(self.now) == "open":
            assert not self.breaker.allows(self.now)
            assert 0 < self.breaker.wait_s(self.now) <= 60

    @invariant()
    def probes_are_bounded(self) -> None:
        if hasattr(self, "breaker"):
            assert len(self.breaker._probes) <= self.probes

    def teardown(self) -> None:
        """However it stands, and whatever hangs, a backend that works again is let back in."""
        if not hasattr(self, "breaker"):
            return
        for _ in range(200):
            self.now += 1.0
            if self.breaker.allows(self.now):
                self.breaker.succeeded(self.breaker.begin(self.now), self.now)
        assert self.breaker.state(self.now) == "closed"


TestBreakerLife = BreakerLife.TestCase
TestBreakerLife.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
