"""A circuit breaker by error rate: it keeps requests from a deployment that fails too often, and probes it from time to time.

    closed     every call passes; opens when too many of the last calls failed, or too many in a row
    open       no call passes, for a while
    half_open  a few calls pass as probes; enough good ones close it, a bad one too many opens it again

The rate must exceed its limit by one standard error: at the limit itself, chance would open it every other minute, and with a
hundred calls in the window a healthy backend (1 % errors) would be cut off every few days. What a call reports after the
state it began in has ended is not counted. Pure arithmetic on a clock that the caller reads; each call costs the same.
"""

from random import Random
from typing import Literal

from gateway.routing.config import BreakerConfig
from gateway.routing.window import Window

BreakerState = Literal["closed", "open", "half_open"]

_NO_ERA = 0
_NO_TICKET = -1
_BUSY_PROBES_WAIT_S = 1.0


class Breaker:
    """Of one deployment. `now` is monotonic seconds everywhere.

    A call takes a ticket by `begin`, and gives it back by exactly one of `succeeded`, `failed` and `cancelled`; before that it
    may say `answered`.
    """

    def __init__(self, config: BreakerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._window = Window(config.window_s)
        self._state: BreakerState = "closed"
        self._tickets = 1
        self._era = 1
        self._in_a_row = 0
        self._open_until = 0.0
        self._closed_at = 0.0
        self._streak = 0
        self._probes: dict[int, float] = {}
        self._passed = 0
        self._broken = 0

    def allows(self, now: float) -> bool:
        """Whether a call may begin now. In the states that pass, this is also what moves the breaker on."""
        if self._state == "closed":
            return True
        return self.state(now) == "half_open" and len(self._probes) < self._config.half_open_probes

    def state(self, now: float) -> BreakerState:
        """The state at this moment."""
        if self._state == "open" and now >= self._open_until:
            self._half_open()
        while self._state == "half_open" and self._probes:
            oldest, deadline = next(iter(self._probes.items()))
            if now < deadline:
                break
            self.failed(oldest, now)
        return self._state

    def wait_s(self, now: float) -> float:
        """Seconds until a call may pass again; 0 when one may now."""
        if self.allows(now):
            return 0.0
        return self._open_until - now if self._state == "open" else _BUSY_PROBES_WAIT_S

    def error_rate(self, now: float) -> float:
        """The share of failures within the window; 0 without calls."""
        self._window.advance(now)
        return self._window.error_rate

    def begin(self, now: float) -> int:
        """Begin a call that `allows` let pass, and return its ticket. What passed nevertheless is not counted."""
        if self._state == "closed":
            return self._era
        if self.state(now) != "half_open":
            return _NO_TICKET
        self._tickets += 1
        self._probes[self._tickets] = now + self._config.probe_timeout_s
        return self._tickets

    def answered(self, ticket: int, now: float) -> None:
        """The first output came: that is all a probe has to show, since answers may take minutes."""
        if self._probes and self._probes.pop(ticket, None) is not None:
            self._judge(now, failed=False)

    def succeeded(self, ticket: int, now: float) -> None:
        """The call ended well."""
        if ticket == self._era:
            self._in_a_row = 0
            self._window.add(now, failed=False)
        else:
            self.answered(ticket, now)

    def failed(self, ticket: int, now: float) -> None:
        """The deployment broke the call."""
        if ticket == self._era:
            self._in_a_row += 1
            self._window.add(now, failed=True)
            if self._fails_too_often():
                self._open(now)
        elif self._probes.pop(ticket, None) is not None:
            self._judge(now, failed=True)

    def cancelled(self, ticket: int) -> None:
        """The call ended without saying anything about the deployment."""
        self._probes.pop(ticket, None)

    def recover(self) -> None:
        """Probe at once instead of after the rest: something else says that the deployment is back."""
        if self._state == "open":
            self._half_open()

    def _fails_too_often(self) -> bool:
        config, window = self._config, self._window
        if config.consecutive_failures and self._in_a_row >= config.consecutive_failures:
            return True
        allowed = config.error_rate * window.calls
        excess = window.failures - allowed
        return window.calls >= config.min_calls and excess > 0 and excess * excess > allowed * (1 - config.error_rate)

    def _judge(self, now: float, *, failed: bool) -> None:
        probes = self._config.half_open_probes
        self._passed += not failed
        self._broken += failed
        if self._broken > self._config.close_below * probes:
            self._open(now)
        elif self._passed + self._broken >= probes:
            self._close(now)

    def _open(self, now: float) -> None:
        if self._state == "closed" and now - self._closed_at >= self._config.window_s:
            self._streak = 0
        longest = min(self._config.max_open_s, self._config.open_s * 2.0 ** min(self._streak, 32))
        # Between half and all of it, so that many gateways do not come back in the same moment.
        self._open_until = now + longest * (0.5 + self._random.random() / 2)
        self._streak += 1
        self._enter("open", _NO_ERA)

    def _half_open(self) -> None:
        self._passed = self._broken = 0
        self._enter("half_open", _NO_ERA)

    def _close(self, now: float) -> None:
        self._closed_at = now
        self._window.clear()
        self._in_a_row = 0
        self._tickets += 1
        self._enter("closed", self._tickets)

    def _enter(self, state: BreakerState, era: int) -> None:
        self._state = state
        self._era = era
        self._probes.clear()
