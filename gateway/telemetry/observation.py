"""The life of one request, as the metrics see it.

`tokens` runs once per delta of every stream, so the series is looked up once and held. Exactly one of `finish`, `fail` and
`cancelled` ends an observation; a later call does nothing, which lets a handler call `cancelled` in its `finally` without
knowing what came before. `settle` comes last, once.
"""

from collections.abc import Callable

from backends.types import Usage
from gateway.call import Trail
from gateway.telemetry.blame import known_code
from gateway.telemetry.families import Series
from gateway.telemetry.live import Live
from gateway.telemetry.settled import SettledFamilies

CLIENT_CLOSED_STATUS = 499
"""The status that nginx logs for a client that left; no client ever sees it."""

_OK = (200, "")
_LEFT = (CLIENT_CLOSED_STATUS, "client_closed_request")


class Observation:
    """One running request. Not thread-safe: it belongs to the task that serves the request."""

    __slots__ = ("_begun", "_clock", "_ended", "_last", "_live", "_series", "_settled", "_stream", "_tokens", "_total")

    def __init__(
        self, series: Series, live: Live, settled: SettledFamilies, clock: Callable[[], float], *, stream: bool
    ) -> None:
        self._series = series
        self._live = live
        self._settled = settled
        self._clock = clock
        self._stream = stream
        self._begun = clock()
        self._last = 0.0
        self._tokens = 0
        self._total = 0
        self._ended = False
        series.in_flight[stream] += 1

    def tokens(self, count: int) -> None:
        """Note that `count` tokens have just come; 0 (echoed text, a finish without a token) is not an event."""
        if count <= 0:
            return
        now = self._clock()
        if self._tokens == 0:
            passed = now - self._begun
            self._series.first_token.observe(passed)
            self._live.first_token(now, passed, count)
        else:
            gap = (now - self._last) / count
            self._series.inter_token.observe(gap, count)
            self._live.later_tokens(now, gap, count)
        self._last = now
        self._tokens += count

    def finish(self, usage: Usage | None, reason: str | None = None) -> None:
        """End with success.

        Args:
            usage: None when the backend did not say; then the tokens that came are counted.
            reason: the finish reason of the first choice, None where there is no such thing.
        """
        if not self._end(_OK):
            return
        series = self._series
        if usage is None:
            self._count_generated()
        else:
            series.prompt_tokens += usage.prompt_tokens
            series.cached_prompt_tokens += usage.cached_tokens
            series.generation_tokens += usage.completion_tokens
            self._total = usage.prompt_tokens + usage.completion_tokens
            if usage.completion_tokens > self._tokens:
                # An answer that came whole.
                self._live.more_tokens(usage.completion_tokens - self._tokens)
        if reason is not None:
            series.finishes[reason] = series.finishes.get(reason, 0) + 1

    def fail(self, error_code: str | None, status: int, kind: str = "") -> None:
        """End with an error: its code, the HTTP status it has or would have had, had the stream not begun, and its type."""
        if self._end((status, known_code(error_code))):
            self._count_generated()
            if status == 429:
                self._settled.refused(error_code, kind)

    def cancelled(self) -> None:
        """End because the client left."""
        if self._end(_LEFT):
            self._count_generated()

    def settle(self, trail: Trail, key_id: str) -> None:
        """Count what the call came to in all, after its end; `key_id` is of a known key, or empty."""
        self._series.queue_wait.observe(trail.waited_s)
        self._settled.settle(self._series.labels[1], trail, key_id, self._total)

    def _end(self, how: tuple[int, str]) -> bool:
        if self._ended:
            return False
        self._ended = True
        series = self._series
        series.in_flight[self._stream] -= 1
        now = self._clock()
        series.duration.observe(now - self._begun)
        series.requests[how] = series.requests.get(how, 0) + 1
        self._live.ended(now, failed=how[0] >= 400 and how is not _LEFT)
        return True

    def _count_generated(self) -> None:
        self._series.generation_tokens += self._tokens
        self._total = self._tokens
