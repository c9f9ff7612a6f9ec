"""How one of several usable deployments is chosen: by weight, by load or by speed. `gateway.routing.affinity` has the others.

A policy is asked only where there is a choice, and sees only seats of one tier that may be used now.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from gateway.call import Call
from gateway.routing.seat import Seat

_STALE_AFTER_S = 30.0


class Policy(Protocol):
    """Chooses a seat. One instance belongs to one route."""

    def choose(self, call: Call, seats: Sequence[Seat]) -> Seat:
        """Choose one of at least one seat, and remember what the policy needs to remember about it."""
        ...


class Weighted:
    """Smooth weighted round robin: 3 to 1 gives a a b a, not a a a b. A random phase keeps several gateways out of step.

    Source: nginx, `ngx_http_upstream_round_robin`.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._credit: dict[Seat, float] = {}

    def choose(self, call: Call, seats: Sequence[Seat]) -> Seat:
        """Everyone earns its weight; the richest is chosen and pays what all have earned."""
        credit = self._credit
        total, best, most = 0.0, seats[0], float("-inf")
        for seat in seats:
            held = credit.get(seat)
            if held is None:
                held = self._random.random() * seat.weight
            held += seat.weight
            credit[seat] = held
            total += seat.weight
            if held > most:
                best, most = seat, held
        credit[best] = most - total
        return best


class LeastOutstanding:
    """The fewest running attempts for its weight; chance decides between equals."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(self, call: Call, seats: Sequence[Seat]) -> Seat:
        """Choose the seat that one more attempt burdens least."""
        return _least(seats, lambda seat: (seat.deployment.outstanding + 1) / seat.weight, self._random)


class LowestLatency:
    """The shortest expected time to the first output: the average, once for every attempt that runs there and this one.

    Multiplying by the load keeps a crowd from running to the fastest deployment before its average shows it. A deployment that
    was not measured for 30 s is tried with one request at a time, so that nobody is left out for ever for one slow answer.
    """

    def __init__(self, random: Random, clock: Callable[[], float]) -> None:
        self._random = random
        self._clock = clock

    def choose(self, call: Call, seats: Sequence[Seat]) -> Seat:
        """Choose an idle deployment of unknown speed if there is one, else the one that is expected to answer first."""
        oldest = self._clock() - _STALE_AFTER_S
        known = []
        for seat in seats:
            deployment = seat.deployment
            if deployment.ttft_s is not None and deployment.measured_at >= oldest:
                known.append(seat)
            elif deployment.outstanding == 0:
                return seat
        if not known:
            return _least(seats, lambda seat: (seat.deployment.outstanding + 1) / seat.weight, self._random)
        return _least(known, _expected_ttft, self._random)


def _expected_ttft(seat: Seat) -> float:
    deployment = seat.deployment
    return (deployment.ttft_s or 0.0) * (deployment.outstanding + 1) / seat.weight


def _least(seats: Sequence[Seat], cost: Callable[[Seat], float], random: Random) -> Seat:
    """Return a seat of the lowest cost; each of several equal ones with the same probability."""
    best, lowest, equals = seats[0], cost(seats[0]), 1
    for seat in seats[1:]:
        value = cost(seat)
        if value < lowest:
            best, lowest, equals = seat, value, 1
        elif value == lowest:
            equals += 1
            if random.random() * equals < 1:
                best = seat
    return best
