"""Which tokens are computed next: admission, prefix reuse, the batch of each step, preemption. Plain Python, no llama.cpp.

A step holds one token of every decoding sequence first, then a capped chunk of prompt tokens, so running streams never wait
for a whole prompt. Admission is optimistic: a sequence needs cells for its prompt, not for the answer it may never give. When
the cells run out, residents of the prefix cache go first, and then the newest sequence is preempted: it waits at the head of
the queue and is computed again later. The oldest always advances, so everything ends. A sequence whose prefix is being
computed by another right now waits for that instead of computing it a second time.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from edge.cells import CellPool
from edge.prefix import PrefixCache, Resident, shared_prefix
from edge.sequence import Sequence


class KvMemory(Protocol):
    """The operations of llama.cpp's memory that scheduling needs; `slot` is a llama.cpp sequence id."""

    @property
    def partial(self) -> bool:
        """Whether part of a sequence can be copied or cut off (not for recurrent and hybrid models)."""
        ...

    def reusable(self, slot: int, end: int) -> bool:
        """Whether a new token at position `end` would find all it attends to (a sliding window may have lost it)."""
        ...

    def copy(self, source: int, target: int, end: int) -> None:
        """Let `target`, which is empty, share positions `0 <= p < end` of `source`."""
        ...

    def truncate(self, slot: int, end: int) -> bool:
        """Drop positions from `end` on; False when that is impossible and nothing was done."""
        ...

    def clear(self, slot: int) -> None:
        """Drop the whole sequence. Never fails."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the scheduler, all in tokens (= KV cells) except counts of sequences.

    `chunk` caps the prompt tokens of a step; `batch` all its tokens. `cached_cells` caps what residents may hold: in a unified
    cache attention walks over their cells too, so a large idle cache slows every step.
    """

    slots: int
    cells: int
    batch: int
    chunk: int
    cached_sequences: int
    cached_cells: int


@dataclass(slots=True)
class Item:
    """Compute `cells`-many tokens of a sequence, from position `start` on."""

    sequence: Sequence
    start: int
    cells: list[int]


class _Admission(Enum):
    ADMITTED = auto()
    DEFERRED = auto()
    NO_ROOM = auto()


# Waiting for a prefix that another sequence computes pays off only when it is longer than this many tokens.
_WORTH_WAITING = 16
# A resident whose unused tail is at most this long is taken over instead of shared: the tail is what a next turn never repeats.
_CLAIMED_TAIL = 32
# Finished sequences shorter than this are not worth a place in the prefix cache.
_WORTH_KEEPING = 8
# Logits of this many prompt tokens are kept at once (a row is 4 bytes times the vocabulary).
_LOGIT_ROWS = 64
# How many waiting sequences are looked at beyond those that wait for a prefix.
_LOOKAHEAD = 32


class Scheduler:
    """All sequences of one model, from submission to release."""

    def __init__(self, limits: Limits, memory: KvMemory) -> None:
        self.limits = limits
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.pool = CellPool(limits.cells)
        self.cache = PrefixCache(limits.cached_sequences)
        self.preemptions = 0
        self._memory = memory
        self._slots = list(range(limits.slots + limits.cached_sequences - 1, -1, -1))
        self._donors: dict[Sequence, tuple[Sequence, int]] = {}

    # ---- from outside --------------------------------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence. The caller has checked that its tokens fit `limits.cells`."""
        assert 0 < len(sequence.tokens) <= self.limits.cells
        self.waiting.append(sequence)

    def finish(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Let a sequence go, in whatever state it is; with `keep` its prefix stays for others while there is room."""
        if sequence.finished:
            return
        sequence.finished = True
        self._donors.pop(sequence, None)
        if sequence.slot < 0:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        if keep and sequence.num_past >= _WORTH_KEEPING and self.limits.cached_sequences:
            self._retire(sequence)
        else:
            self._drop(sequence)

    def plan(self) -> list[Item]:
        """Admit who can be, make room, and say what the next step computes. Empty only when nothing runs."""
        self._admit()
        while self.running:
            decoding = [s for s in self.running if s.is_decoding]
            if self.pool.free < len(decoding):
                self._free_cells()
                continue
            items = [Item(s, len(s.cells), self.pool.take(1)) for s in decoding]
            if len(decoding) < len(self.running):
                items += self._prefills(min(self.limits.chunk, self.limits.batch - len(items)))
            if items:
                return items
            self._preempt_newest()
        return []

    def commit(self, items: list[Item]) -> None:
        """The step was computed."""
        for item in items:
            item.sequence.cells.extend(item.cells)

    def rollback(self, items: list[Item]) -> None:
        """The step was not computed; llama.cpp's memory is as it was before."""
        for item in items:
            self.pool.release(item.cells)

    def relieve(self) -> bool:
        """Free something after llama.cpp found no cells where our books had some. False when there is nothing to free."""
        resident = self.cache.oldest()
        if resident:
            self._evict(resident)
            return True
        if len(self.running) > 1:
            self._preempt_newest()
            return True
        return False

    def restart(self, sequence: Sequence) -> None:
        """Compute a running sequence from its first token again (its cache contents are not to be trusted)."""
        self.running.remove(sequence)
        self._drop(sequence)
        self.waiting.appendleft(sequence)

    def clear_cache(self) -> None:
        """Forget all residents."""
        while resident := self.cache.oldest():
            self._evict(resident)

    def check_integrity(self) -> None:
        """Assert that slots and cells are where they should be: each held by exactly those who say so."""
        self.pool.check_integrity([*(s.cells for s in self.running), *(r.cells for r in self.cache)])
        slots = [*self._slots, *(s.slot for s in self.running), *(r.slot for r in self.cache)]
        assert sorted(slots) == list(range(self.limits.slots + self.limits.cached_sequences)), "a slot is lost or held twice"
        assert len(self.running) <= self.limits.slots
        assert len(self.cache) <= self.limits.cached_sequences
        assert all(s.slot < 0 and not s.cells for s in self.waiting)
        assert all(len(r.cells) == len(r.tokens) for r in self.cache)

    # ---- admission -----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        position = 0
        while position < min(len(self.waiting), _LOOKAHEAD) and len(self.running) < self.limits.slots:
            outcome = self._try_admit(self.waiting[position])
            if outcome is _Admission.NO_ROOM:
                return  # nobody overtakes a sequence that waits for room, else a long one would wait for ever
            if outcome is _Admission.DEFERRED:
                position += 1
            else:
                del self.waiting[position]

    def _try_admit(self, sequence: Sequence) -> _Admission:
        if self._still_waits(sequence):
            return _Admission.DEFERRED
        source: Resident | Sequence | None = None
        source, keep = (None, 0) if sequence.all_logits else self._resident_prefix(sequence)
        donor, shared = (None, 0) if sequence.all_logits else self._running_prefix(sequence)
        if donor and shared > max(keep, donor.num_past) + _WORTH_WAITING:
            self._donors[sequence] = donor, shared
            if shared < len(donor.tokens) - 1:  # a step of its own for the donor's last token would gain nobody anything
                donor.boundaries.add(shared)
            return _Admission.DEFERRED
        if donor and min(shared, donor.num_past) > keep and self._memory.reusable(donor.slot, min(shared, donor.num_past)):
            source, keep = donor, min(shared, donor.num_past)
        if not self._room_for(sequence, source, keep):
            if self.running:
                return _Admission.NO_ROOM
            self.clear_cache()
            source, keep = None, 0
        self._place(sequence, source, keep)
        return _Admission.ADMITTED

    def _still_waits(self, sequence: Sequence) -> bool:
        if sequence not in self._donors:
            return False
        donor, length = self._donors[sequence]
        if donor.slot >= 0 and donor.num_past < length:
            return True
        del self._donors[sequence]
        return False

    def _resident_prefix(self, sequence: Sequence) -> tuple[Resident | None, int]:
        resident, shared = self.cache.longest(sequence.tenant, sequence.tokens)
        if resident is None:
            return None, 0
        keep = min(shared, len(sequence.tokens) - 1)  # the last token has to be computed: its logits are what is wanted
        if not self._memory.partial and keep != len(resident.tokens):
            return None, 0
        return (resident, keep) if keep and self._memory.reusable(resident.slot, keep) else (None, 0)

    def _running_prefix(self, sequence: Sequence) -> tuple[Sequence | None, int]:
        best, most = None, 0
        if not self._memory.partial:
            return best, most
        for other in self.running:
            if other.tenant == sequence.tenant and other.tokens[: most + 1] == sequence.tokens[: most + 1]:
                best, most = other, min(shared_prefix(other.tokens, sequence.tokens), len(sequence.tokens) - 1)
        return best, most

    def _room_for(self, sequence: Sequence, source: "Resident | Sequence | None", keep: int) -> bool:
        # Some headroom, so that a newcomer is not preempted by the next few tokens of those who run.
        wanted = len(sequence.tokens) - keep + (8 * len(self.running) if self.running else 0)
        keep_resident = source if isinstance(source, Resident) else None
        while self.pool.free < wanted and (resident := self.cache.oldest(keep_resident)):
            self._evict(resident)
        return self.pool.free >= wanted

    def _place(self, sequence: Sequence, source: "Resident | Sequence | None", keep: int) -> None:
        if isinstance(source, Resident):
            if not self._memory.partial or len(source.tokens) - keep <= _CLAIMED_TAIL:
                self._claim(sequence, source, keep)
            else:
                self.cache.touch(source)
                self._share(sequence, source.slot, source.cells[:keep])
        elif source is not None:
            self._share(sequence, source.slot, source.cells[:keep])
        else:
            sequence.slot = self._free_slot()
        if not sequence.admitted:
            sequence.admitted, sequence.cached = True, sequence.num_past
        sequence.age = 0
        self.running.append(sequence)

    def _claim(self, sequence: Sequence, resident: Resident, keep: int) -> None:
        self.cache.remove(resident)
        sequence.slot, sequence.cells = resident.slot, resident.cells[:keep]
        self.pool.release(resident.cells[keep:])
        if keep < len(resident.cells) and not self._memory.truncate(resident.slot, keep):
            self._memory.clear(resident.slot)
            self.pool.release(sequence.cells)
            sequence.cells = []

    def _share(self, sequence: Sequence, slot: int, cells: list[int]) -> None:
        sequence.slot, sequence.cells = self._free_slot(), cells
        self._memory.copy(slot, sequence.slot, len(cells))
        self.pool.share(cells)

    def _free_slot(self) -> int:
        # Running sequences and residents each have their own bound, and together they are all ids there are.
        return self._slots.pop()

    # ---- the batch -----------------------------------------------------------------------------------------------------

    def _free_cells(self) -> None:
        resident = self.cache.oldest()
        if resident:
            self._evict(resident)
        else:
            self._preempt_newest()

    def _prefills(self, budget: int) -> list[Item]:
        """Share the budget: shortest rest first, so that most get their first token soon; age makes up for length."""
        items = []
        prefilling = [s for s in self.running if not s.is_decoding]
        prefilling.sort(key=lambda s: s.num_missing - s.age * self.limits.chunk // 4)
        for sequence in prefilling:
            count = min(budget, self._chunk_of(sequence))
            while self.pool.free < count and (resident := self.cache.oldest()):
                self._evict(resident)
            count = min(count, self.pool.free)
            sequence.age = 0 if count else sequence.age + 1
            if count:
                items.append(Item(sequence, sequence.num_past, self.pool.take(count)))
                budget -= count
        return items

    def _chunk_of(self, sequence: Sequence) -> int:
        """The rest of the prompt, up to where somebody waits to share it."""
        past, count = sequence.num_past, sequence.num_missing
        if sequence.boundaries:
            ahead = [boundary - past for boundary in sequence.boundaries if boundary > past]
            count = min([count, *ahead])
        return min(count, _LOGIT_ROWS) if sequence.all_logits else count

    # ---- giving back ---------------------------------------------------------------------------------------------------

    def _preempt_newest(self) -> None:
        victim = self.running.pop()
        self._drop(victim)
        self.waiting.appendleft(victim)
        self.preemptions += 1

    def _drop(self, sequence: Sequence) -> None:
        self._memory.clear(sequence.slot)
        self.pool.release(sequence.cells)
        self._slots.append(sequence.slot)
        sequence.slot, sequence.cells = -1, []
        sequence.boundaries.clear()

    def _evict(self, resident: Resident) -> None:
        self.cache.remove(resident)
        self._memory.clear(resident.slot)
        self.pool.release(resident.cells)
        self._slots.append(resident.slot)

    def _retire(self, sequence: Sequence) -> None:
        tokens = sequence.tokens[: sequence.num_past]
        cover, shared = self.cache.longest(sequence.tenant, tokens)
        if cover and shared == len(tokens):
            self.cache.touch(cover)
            self._drop(sequence)
            return
        for resident in self.cache.covered_by(sequence.tenant, tokens):
            self._evict(resident)
        self.cache.add(Resident(sequence.slot, sequence.tenant, tokens, sequence.cells))
        sequence.slot, sequence.cells = -1, []
        sequence.boundaries.clear()
        self._trim()

    def _trim(self) -> None:
        while len(self.cache) > self.limits.cached_sequences:
            self._evict(self.cache.oldest())  # type: ignore[arg-type]
        while len(self.cache) and self._cached_cells() > self.limits.cached_cells:
            self._evict(self.cache.oldest())  # type: ignore[arg-type]

    def _cached_cells(self) -> int:
        running: set[int] = set().union(*(s.cells for s in self.running))
        return self.pool.used - len(running)
