"""When a crashed engine is started again, and when it is given up. Pure arithmetic on a clock that the caller reads.

A crash that came before the engine was ever ready lets no other one age: a model that dies after ten minutes of loading would
otherwise be loaded for ever, because no window ever holds enough of its crashes.
"""

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 10.0


class RestartPolicy:
    """Remembers the recent crashes of one model.

    Args:
        max_crashes: so many crashes within the window, and it is given up.
        window_s: seconds after which a crash is forgotten.
    """

    def __init__(self, max_crashes: int, window_s: float) -> None:
        self._max_crashes = max_crashes
        self._window_s = window_s
        self._crashes: list[float] = []

    def delay_after_crash(self, now: float, *, was_ready: bool) -> float | None:
        """Record a crash; return the seconds to wait before the next start (0.1 doubling up to 10), None to give up."""
        if was_ready:
            self._crashes = [crash for crash in self._crashes if now - crash < self._window_s]
        self._crashes.append(now)
        if len(self._crashes) >= self._max_crashes:
            return None
        return float(min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (len(self._crashes) - 1)))

    def forget(self) -> None:
        """Begin anew, after a model that was given up has had its rest."""
        self._crashes.clear()
