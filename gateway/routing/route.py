"""One public model name at run time: its deployments, and which of them takes a call."""

from collections.abc import Callable, Collection, Sequence
from itertools import groupby

from backends.errors import BackendError, ContextOverflow, Overloaded, Rejected, Unavailable
from gateway.call import Call
from gateway.routing.canary import Canary
from gateway.routing.policies import Policy
from gateway.routing.seat import Seat

_MAX_TAGS_SHOWN = 5
_LEAST_WAIT_S = 0.1


class Route:
    """Who answers for the public name `name`.

    Args:
        seats: the members, without the canary; those of weight 0 are left out.
        trial: the seat of the canary; given together with `canary`.
        fallbacks: public names that stand in when nobody here can answer.
        context_fallbacks: public names that stand in when the prompt does not fit.
        hedge_after_s: seconds without output after which a second attempt begins; 0 for never.
    """

    def __init__(
        self,
        name: str,
        seats: Sequence[Seat],
        policy: Policy,
        clock: Callable[[], float],
        *,
        canary: Canary | None = None,
        trial: Seat | None = None,
        fallbacks: Sequence[str] = (),
        context_fallbacks: Sequence[str] = (),
        hedge_after_s: float = 0.0,
    ) -> None:
        self.name = name
        self.seats = tuple(sorted(seats, key=lambda seat: seat.tier))
        self.canary = canary
        self.trial = trial
        self.fallbacks = tuple(fallbacks)
        self.context_fallbacks = tuple(context_fallbacks)
        self.hedge_after_s = hedge_after_s
        self.policy = policy
        self._clock = clock
        self._tiers = tuple(tuple(tier) for _, tier in groupby(self.seats, key=lambda seat: seat.tier))
        self._only = self.seats[0] if len(self.seats) == 1 and trial is None else None

    def choose(self, call: Call, tried: Collection[Seat] = ()) -> Seat | None:
        """Choose who takes the call now; None when nobody can who is not in `tried`.

        Members that can serve go before those that probably cannot yet (they load, or asked for a short rest), and among them
        lower tiers before higher ones.
        """
        now = self._clock()
        only = self._only
        if only is not None and not tried and only.takes(call, now):
            return only
        trial = self.trial if self.canary is not None and self.canary.takes(call) else None
        if trial is not None and trial not in tried and trial.takes(call, now):
            return trial
        for last_resort in (False, True):
            for tier in self._tiers:
                seats = [seat for seat in tier if seat not in tried and seat.takes(call, now, last_resort=last_resort)]
                if seats:
                    return seats[0] if len(seats) == 1 else self.policy.choose(call, seats)
        return None

    def stand_ins(self, error: BackendError) -> tuple[str, ...]:
        """The public names to try after this error, in order; none when another try cannot help."""
        if isinstance(error, ContextOverflow):
            return self.context_fallbacks
        return self.fallbacks if error.retryable else ()

    def refusal(self, call: Call) -> BackendError:
        """Say why nobody can take the call now, and when somebody may."""
        matching = [seat.deployment for seat in self.seats if call.tags <= seat.tags]
        if not matching:
            tags = ", ".join(sorted(call.tags)[:_MAX_TAGS_SHOWN])
            return Rejected(f"No deployment of the model '{self.name}' carries the tags {tags}.", code="no_matching_deployment")
        now = self._clock()
        wait_s = max(_LEAST_WAIT_S, min(deployment.wait_s(now) for deployment in matching))
        sound = [deployment for deployment in matching if deployment.is_healthy and deployment.breaker.allows(now)]
        if sound:
            text = f"All {len(matching)} deployments of the model '{self.name}' ask for a pause of {wait_s:.1f} s or more."
            return Overloaded(text, code="deployments_paused", retry_after_s=wait_s)
        text = f"None of the {len(matching)} deployments of the model '{self.name}' can serve now: they fail too often."
        return Unavailable(text, code="no_healthy_deployment", retry_after_s=wait_s)
