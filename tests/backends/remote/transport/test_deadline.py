"""One timer serves wait after wait: no wait ends early, none is forgotten."""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

from backends.remote.transport.deadline import Deadline


class Timer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.is_cancelled = False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """As much of an event loop as a deadline sees; time passes only in `advance`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(when, callback)
        self.timers.append(timer)
        return timer

    def live(self) -> list[Timer]:
        return sorted((timer for timer in self.timers if not timer.is_cancelled), key=Timer.when)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while (timers := self.live()) and timers[0].at <= end:
            self.now = max(self.now, timers[0].at)
            self.timers.remove(timers[0])
            timers[0].callback()
        self.now = end


@given(st.lists(st.tuples(st.sampled_from(["start", "stop", "advance"]), st.integers(1, 10)), max_size=40))
@example([("start", 10), ("advance", 5), ("stop", 1), ("start", 10), ("advance", 10)])
@example([("start", 10), ("stop", 1), ("start", 2), ("advance", 3)])
def test_wait_expires_at_its_own_time_and_never_at_another(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    expired: list[float] = []
    deadline = Deadline(cast(AbstractEventLoop, clock), lambda: expired.append(clock.now))
    due: float | None = None
    expected: list[float] = []
    for step, number in steps:
        if step == "start":
            deadline.start(number)
            due = clock.now + number
        elif step == "stop":
            deadline.stop()
            due = None
        else:
            if due is not None and due <= clock.now + number:
                expected.append(due)
                due = None
            clock.advance(number)
        assert expired == expected
        assert len(clock.live()) <= 1
    deadline.cancel()
    assert clock.live() == []


def test_short_waits_one_after_another_cost_one_timer() -> None:
    clock = Clock()
    deadline = Deadline(cast(AbstractEventLoop, clock), lambda: None)
    for _ in range(1000):
        deadline.start(60)
        clock.advance(0.01)
        deadline.stop()
    assert len(clock.timers) == 1
