"""From heartbeats to the verdict that a child hangs. Pure: times come from the caller's monotonic clock, in seconds.

Silence is only counted while this process itself runs: it is added up tick by tick, and a tick that comes late counts as little
more than one. Otherwise a gateway that was stopped, or busy for seconds, would kill healthy children when it comes back.
"""

from backends.child.config import ChildConfig

TICK_S = 0.25


class VitalSigns:
    """What is known about the pulse of one life of a child, which began at `now`."""

    def __init__(self, config: ChildConfig, now: float) -> None:
        self._config = config
        self._tick_at = now
        self._loading_s = 0.0
        self._silent_s: float | None = None
        self._step_age_s = 0.0
        self._is_ready = False

    def heard(self) -> None:
        """A message came, whatever it says."""
        self._silent_s = 0.0

    def beat(self, step_age_s: float) -> None:
        """A heartbeat said how long the present step has been running."""
        self._step_age_s = step_age_s

    def ready(self) -> None:
        """Loading is over."""
        self._is_ready = True

    def tick(self, now: float) -> None:
        """Let time pass; to be called every `TICK_S`, after everything that arrived was read."""
        passed = min(now - self._tick_at, 2 * TICK_S)
        self._tick_at = now
        if self._silent_s is not None:
            self._silent_s += passed
        if not self._is_ready:
            self._loading_s += passed

    def hang(self) -> str | None:
        """Say why the child has to be replaced, as the end of a sentence about it; None while all is well.

        A child that has not said anything yet is given `load_timeout_s`: on a cold disk the imports alone may take long.
        """
        config = self._config
        if self._silent_s is not None and self._silent_s > config.hang_timeout_s:
            return f"gave no sign of life for {config.hang_timeout_s:g} s (hang_timeout_s)"
        if self._step_age_s > config.step_timeout_s:
            return f"has been computing one step for more than {config.step_timeout_s:g} s (step_timeout_s)"
        return None

    def is_late(self) -> bool:
        """Whether it has been loading for longer than `load_timeout_s`."""
        return not self._is_ready and self._loading_s > self._config.load_timeout_s
