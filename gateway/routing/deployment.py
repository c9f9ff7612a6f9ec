"""One configured model as routing sees it: how busy, how fast and how broken it is. Shared by all routes that use it."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from backends.errors import BackendError, Overloaded, Unavailable
from backends.protocol import Backend, Forwarder
from gateway.call import Call
from gateway.routing.breaker import Breaker
from gateway.routing.faults import is_fault
from gateway.telemetry.tracing import AttemptTrace, current_trace, operation_of
from gateway.telemetry.upstream import Outcome, UpstreamSeries, outcome_of

SHORT_PAUSE_S = 1.0
"""A pause with so much left or less is an estimate of when a queue drains; where nobody else can serve, it is ignored."""

_SMOOTHING = 0.2
_MAX_PAUSE_S = 60.0
_UNHEALTHY_WAIT_S = 2.0


@runtime_checkable
class Checkable(Protocol):
    """A backend that can be asked whether what is behind it lives."""

    async def check(self) -> None:
        """Ask. Raises `BackendError` when it does not answer as it should."""


class Outcomes(Protocol):
    """What a canary learns about each attempt of one side of its comparison."""

    def first_token(self, ttft_s: float) -> None:
        """The first output came after so many seconds."""

    def succeeded(self, itl_s: float | None) -> None:
        """It ended well, with so many seconds between tokens."""

    def failed(self) -> None:
        """The deployment broke it."""


class Deployment:
    """Runtime state of one backend.

    Attributes:
        name: of the configured model.
        outstanding: attempts that run.
        ttft_s: seconds to the first output, a moving average that weighs the newest by 0.2; None until one was measured.
        measured_at: when `ttft_s` last changed, in monotonic seconds.
        paused_until: the time before which it asked to be left alone (429 with retry-after; at most 60 s are believed).
        is_healthy: the verdict of the active checks; without one nothing is sent.
        is_ready: what the backend says of itself; one that is not ready is the last resort.
        series: what its attempts come to, for metrics.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        breaker: Breaker,
        clock: Callable[[], float],
        series: UpstreamSeries | None = None,
    ) -> None:
        self.name = name
        self.backend = backend
        self.breaker = breaker
        self.outstanding = 0
        self.ttft_s: float | None = None
        self.measured_at = 0.0
        self.paused_until = 0.0
        self.is_healthy = True
        self.is_ready = True
        self.clock = clock
        self.series = series or UpstreamSeries()
        self._is_checked = isinstance(backend, Checkable)
        self._provider = "openai" if isinstance(backend, Forwarder) else "baton"

    def is_usable(self, now: float, *, last_resort: bool = False) -> bool:
        """Whether an attempt may begin; with `last_resort` also where it probably cannot be served yet."""
        if not self.is_healthy:
            return False
        if last_resort:
            return now >= self.paused_until - SHORT_PAUSE_S and self.breaker.allows(now)
        return self.is_ready and now >= self.paused_until and self.breaker.allows(now)

    def wait_s(self, now: float) -> float:
        """Seconds until it may be usable again; an estimate where that depends on a check."""
        wait_s = max(self.paused_until - now, self.breaker.wait_s(now), 0.0)
        return wait_s if self.is_healthy else max(wait_s, _UNHEALTHY_WAIT_S)

    def begin(self, call: Call, outcomes: Outcomes | None = None) -> "Attempt":
        """Begin an attempt, and write it into the call's trail."""
        self.outstanding += 1
        call.trail.deployment = self.name
        call.trail.attempts += 1
        now = self.clock()
        trace = current_trace.get()
        span = None if trace is None else trace.attempt(operation_of(call.endpoint), self.name, self._provider)
        return Attempt(self, outcomes, now, self.breaker.begin(now), span)

    def is_at_fault(self, error: BackendError) -> bool:
        """Whether the error counts against it.

        A backend without active checks says by its health that it loads; refusing requests meanwhile is no other fault.
        """
        return is_fault(error) and (self._is_checked or not isinstance(error, Unavailable))

    def observe(self, ttft_s: float, now: float) -> None:
        """Take one time to first output into the average."""
        before = self.ttft_s
        self.ttft_s = ttft_s if before is None else before + _SMOOTHING * (ttft_s - before)
        self.measured_at = now

    def pause(self, seconds: float, now: float) -> None:
        """Leave it alone for a while; a longer pause that already runs stays."""
        self.paused_until = max(self.paused_until, now + min(seconds, _MAX_PAUSE_S))


class Attempt:
    """One try of one call at one deployment. It ends exactly once; whatever is said after that changes nothing."""

    __slots__ = ("_has_ended", "_outcomes", "_started_at", "_ticket", "deployment", "span", "ttft_s")

    def __init__(
        self,
        deployment: Deployment,
        outcomes: Outcomes | None,
        started_at: float,
        ticket: int,
        span: AttemptTrace | None = None,
    ) -> None:
        self.deployment = deployment
        self.span = span
        self.ttft_s: float | None = None
        self._outcomes = outcomes
        self._started_at = started_at
        self._ticket = ticket
        self._has_ended = False

    def first_token(self) -> None:
        """The first output is there; of an answer that comes whole, the answer. Later calls change nothing."""
        if self._has_ended or self.ttft_s is not None:
            return
        deployment = self.deployment
        now = deployment.clock()
        self.ttft_s = now - self._started_at
        deployment.observe(self.ttft_s, now)
        deployment.series.first_token.observe(self.ttft_s)
        if self.span is not None:
            self.span.first_output()
        deployment.breaker.answered(self._ticket, now)
        if self._outcomes is not None:
            self._outcomes.first_token(self.ttft_s)

    def succeeded(self, itl_s: float | None = None) -> None:
        """The answer is complete. `itl_s` is the mean time between its tokens; None for fewer than two, or when unknown."""
        if self._end("success"):
            deployment = self.deployment
            deployment.breaker.succeeded(self._ticket, deployment.clock())
            if self._outcomes is not None:
                self._outcomes.succeeded(itl_s)

    def failed(self, error: BackendError) -> None:
        """It ended with an error, before or after the first output. Decides by itself against whom that counts."""
        deployment = self.deployment
        if isinstance(error, Overloaded) and error.retry_after_s is not None and not self._has_ended:
            deployment.pause(error.retry_after_s, deployment.clock())
        if not self._end(outcome_of(error), error):
            return
        if not deployment.is_at_fault(error):
            deployment.breaker.cancelled(self._ticket)
        else:
            deployment.breaker.failed(self._ticket, deployment.clock())
            if self._outcomes is not None:
                self._outcomes.failed()

    def cancelled(self) -> None:
        """It ended without saying anything about the deployment: the client left, or another attempt was faster."""
        if self._end("cancelled"):
            self.deployment.breaker.cancelled(self._ticket)

    def _end(self, outcome: Outcome, error: BackendError | None = None) -> bool:
        """Return True the first time."""
        if self._has_ended:
            return False
        self._has_ended = True
        self.deployment.outstanding -= 1
        self.deployment.series.outcomes[outcome] += 1
        if self.span is not None:
            self.span.end(error, cancelled=outcome == "cancelled")
        return True
