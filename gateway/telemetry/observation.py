"""The life of one request, as the metrics see it.

`tokens` runs once per delta of every stream, so the metric children are looked up once per (endpoint, model) and held. Exactly
one of `finish`, `fail` and `cancelled` ends an observation; a later call does nothing, which lets a handler call `cancelled`
in its `finally` without knowing what came before.
"""

from time import perf_counter

from backends.types import Usage
from gateway.telemetry.families import Families

CLIENT_CLOSED_STATUS = 499
"""The status that nginx logs for a client that left; no client ever sees it."""


class Series:
    """The metric children of one (endpoint, model)."""

    def __init__(self, families: Families, endpoint: str, model: str) -> None:
        self.families = families
        self.labels = (endpoint, model)
        self.duration = families.duration.labels(endpoint, model)
        self.first_token = families.first_token.labels(endpoint, model)
        self.inter_token = families.inter_token.labels(endpoint, model)
        self.prompt_tokens = families.prompt_tokens.labels(endpoint, model)
        self.cached_prompt_tokens = families.cached_prompt_tokens.labels(endpoint, model)
        self.generation_tokens = families.generation_tokens.labels(endpoint, model)
        self.in_flight = {
            stream: families.in_flight.labels(endpoint, model, "true" if stream else "false") for stream in (True, False)
        }


class Observation:
    """One running request. Not thread-safe: it belongs to the task that serves the request."""

    __slots__ = ("_begun", "_ended", "_in_flight", "_last", "_series", "_tokens", "error_codes")

    def __init__(self, series: Series, *, stream: bool, error_codes: frozenset[str]) -> None:
        self._series = series
        self.error_codes = error_codes
        self._begun = perf_counter()
        self._last = 0.0
        self._tokens = 0
        self._ended = False
        self._in_flight = series.in_flight[stream]
        self._in_flight.inc()

    def tokens(self, count: int) -> None:
        """Note that `count` tokens have just come; 0 (echoed text, a finish without a token) is not an event."""
        if count <= 0:
            return
        now = perf_counter()
        if self._tokens == 0:
            self._series.first_token.observe(now - self._begun)
        else:
            gap = (now - self._last) / count
            for _ in range(count):
                self._series.inter_token.observe(gap)
        self._last = now
        self._tokens += count

    def finish(self, usage: Usage, reason: str | None = None) -> None:
        """End with success. `reason` is the finish reason of the first choice, None where there is no such thing."""
        if self._end("200", ""):
            self._count(usage)
            if reason is not None:
                self._series.families.finishes.labels(*self._series.labels, reason).inc()

    def fail(self, error_code: str | None, status: int) -> None:
        """End with an error: its code, and the HTTP status it has or would have had, had the stream not begun."""
        code = error_code or "none"
        if self._end(str(status), code if code in self.error_codes else "other"):
            self._count_generated()

    def cancelled(self) -> None:
        """End because the client left."""
        if self._end(str(CLIENT_CLOSED_STATUS), "client_closed_request"):
            self._count_generated()

    def _end(self, status: str, error_code: str) -> bool:
        if self._ended:
            return False
        self._ended = True
        self._in_flight.dec()
        self._series.duration.observe(perf_counter() - self._begun)
        self._series.families.requests.labels(*self._series.labels, status, error_code).inc()
        return True

    def _count(self, usage: Usage) -> None:
        self._series.prompt_tokens.inc(usage.prompt_tokens)
        self._series.cached_prompt_tokens.inc(usage.cached_tokens)
        self._series.generation_tokens.inc(usage.completion_tokens)

    def _count_generated(self) -> None:
        self._series.generation_tokens.inc(self._tokens)
