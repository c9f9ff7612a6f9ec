"""The account of one call: what it holds, and what is written down when it ends, however it ends."""

import asyncio
from time import perf_counter

from backends.errors import BackendError
from backends.types import Usage
from gateway.admission.waiter import Ticket
from gateway.call import Call
from gateway.dispatch.answer import Answer
from gateway.errors import classify
from gateway.limits.limiter import UNLIMITED, Reservation
from gateway.limits.prices import Price, cost
from gateway.routing.deployment import Attempt
from gateway.telemetry.observation import Observation
from gateway.telemetry.usage import UsageToday


class Run:
    """Holds the ticket, the reservation and the attempt of a call. The first end counts; later ones do nothing."""

    __slots__ = (
        "_begun",
        "_ended",
        "_first_at",
        "_prompt_param",
        "_seen",
        "_usage",
        "attempt",
        "call",
        "observation",
        "price",
        "reservation",
        "ticket",
    )

    def __init__(self, call: Call, observation: Observation, usage: UsageToday, prompt_param: str) -> None:
        self.call = call
        self.observation = observation
        self._usage = usage
        self._prompt_param = prompt_param
        self.reservation: Reservation | None = None
        self.ticket: Ticket | None = None
        self.attempt: Attempt | None = None
        self.price: Price | None = None
        self._begun = perf_counter()
        self._first_at = 0.0
        self._seen = 0
        self._ended = False

    def progress(self, outputs: int) -> None:
        """Note that output has come; `outputs` is the sum so far."""
        if not self._first_at:
            self._first_at = perf_counter()
            self.call.trail.first_output_s = self._first_at - self._begun
        self.observation.tokens(outputs - self._seen)
        self._seen = outputs

    async def ended(self, source: Answer) -> None:
        """The answer has come to its end, which may be an error that the client has been told."""
        if self._ended:
            return
        if source.error is not None:
            return await self.failed(source.error)
        # An upstream need not say what an answer took; then the events with output are the best that is known.
        self.call.usage = source.usage or self._estimate()
        self.call.trail.finish = source.finish
        self.observation.finish(self.call.usage, source.finish)
        if self.attempt is not None:
            if self.attempt.span is not None:
                self.attempt.span.describe(self.call.usage, source.finish)
            gaps = self._seen - 1
            self.attempt.succeeded((perf_counter() - self._first_at) / gaps if gaps > 0 else None)
        await self._release()

    async def failed(self, error: Exception) -> None:
        """Something broke, before or in the middle of the answer."""
        if self._ended:
            return
        api_error = classify(error, request_id=self.call.id, prompt_param=self._prompt_param)
        self.call.trail.error = api_error.code or "none"
        self.observation.fail(api_error.code, api_error.status, api_error.type)
        if self.attempt is not None:
            if isinstance(error, BackendError):
                self.attempt.failed(error)
            else:
                self.attempt.cancelled()
        await self._release()

    async def cancelled(self) -> None:
        """The client left, or nobody wants the rest."""
        if self._ended:
            return
        self.observation.cancelled()
        if self.attempt is not None:
            self.attempt.cancelled()
        await self._release()

    def _estimate(self) -> Usage:
        return Usage(self.call.prompt_tokens, self._seen)

    async def _release(self) -> None:
        self._ended = True
        call = self.call
        if self.ticket is not None:
            self.ticket.release()
        if call.usage is None and self._seen:
            # What was computed before it broke off is paid for.
            call.usage = self._estimate()
        if call.usage is not None and self.price is not None:
            call.trail.cost_usd = cost(call.usage, self.price)
        self.observation.settle(call.trail, call.identity.key_id)
        tokens = call.usage.total_tokens if call.usage is not None else 0
        self._usage.add(call.identity.key_id, call.identity.name, tokens, call.trail.cost_usd)
        if self.reservation is not None and self.reservation is not UNLIMITED:
            # A caller that is being cancelled must still pay.
            await asyncio.shield(self.reservation.settle(call.usage, call.trail.cost_usd))
