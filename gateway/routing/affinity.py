"""Policies that bring related requests to the same deployment, where their keys and values are still cached.

Both rest on rendezvous hashing: every member gets a score from the request's hash and its own name, the highest wins. When a
member goes, only its requests move, and each to a place of its own; when it comes back, they return. Sources: Thaler and
Ravishankar (1998), with weights as in Schindelhauer and Schomaker (2005); for bounded loads Mirrokni, Thorup and Zadimoghaddam
(2016).
"""

import math
from collections.abc import Callable, Sequence
from random import Random

from gateway.call import Call
from gateway.routing.hashing import stable_hash, uniform
from gateway.routing.policies import LeastOutstanding, Weighted
from gateway.routing.seat import Seat

LOAD_FACTOR = 1.25
"""How much more than its share of the running attempts a deployment may have before a prefix is served elsewhere."""

MAX_BLOCKS = 64
_MAX_KNOWN = 65_536
_MAX_AGE_S = 600.0


def rendezvous(value: int, seats: Sequence[Seat]) -> Seat:
    """Choose a seat for a hash: each with a probability in proportion to its weight, and always the same one."""
    return max(seats, key=lambda seat: -seat.weight / math.log(uniform(value, seat.key)))


class SessionAffinity:
    """All requests of a conversation go to one deployment; those without a session go by weight."""

    def __init__(self, random: Random) -> None:
        self._weighted = Weighted(random)

    def choose(self, call: Call, seats: Sequence[Seat]) -> Seat:
        """Choose by the session's hash."""
        if not call.session:
            return self._weighted.choose(call, seats)
        return rendezvous(stable_hash(call.session), seats)


class PrefixAffinity:
    """Requests go where the longest part of their prompt was seen last, unless that deployment has more than its share to do.

    A prompt that nobody has seen, or whose deployment is too busy, goes where the hash of its first block says, of those that
    are not too busy; so prompts with the same beginning meet even across gateways. Remembers 65,536 blocks for ten minutes.
    """

    def __init__(self, random: Random, clock: Callable[[], float]) -> None:
        self._least_outstanding = LeastOutstanding(random)
        self._clock = clock
        # Oldest first, since an entry is put in anew whenever it is used.
        self._known: dict[int, tuple[Seat, float]] = {}

    def choose(self, call: Call, seats: Sequence[Seat]) -> Seat:
        """Choose by the prompt's blocks; the first 64 are looked at."""
        blocks = call.prefix[:MAX_BLOCKS]
        if not blocks:
            return self._least_outstanding.choose(call, seats)
        now = self._clock()
        free = _with_room(seats)
        holder = self._holder(blocks, now)
        seat = holder if holder in free else rendezvous(blocks[0], free)
        self._remember(blocks, seat, now)
        return seat

    def _holder(self, blocks: Sequence[int], now: float) -> Seat | None:
        for block in reversed(blocks):
            entry = self._known.get(block)
            if entry is not None and now - entry[1] <= _MAX_AGE_S:
                return entry[0]
        return None

    def _remember(self, blocks: Sequence[int], seat: Seat, now: float) -> None:
        known, entry = self._known, (seat, now)
        for block in blocks:
            known.pop(block, None)
            known[block] = entry
        while len(known) > _MAX_KNOWN:
            del known[next(iter(known))]


def _with_room(seats: Sequence[Seat]) -> list[Seat]:
    """Those whose load does not exceed the bound. There is always one, since all the bounds together exceed the load."""
    running = sum(seat.deployment.outstanding for seat in seats)
    bound = LOAD_FACTOR * running / sum(seat.weight for seat in seats)
    return [seat for seat in seats if seat.deployment.outstanding <= bound * seat.weight + 1]
