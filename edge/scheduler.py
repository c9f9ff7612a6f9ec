"""Which tokens are computed next: admission, prefix reuse, the batch of each step, preemption. Plain Python, no llama.cpp.

A step holds one token of every decoding sequence first, then a capped chunk of prompt tokens, so running streams never wait for
a whole prompt. Admission is optimistic: a sequence needs cells for its prompt, not for the answer it may never give. When the
cells run out the newest sequence is preempted: it waits at the head of the queue, and goes on from a snapshot or is computed
again. The oldest always advances, so everything ends. A sequence whose prefix is being computed by another right now waits for
that instead of computing it a second time.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from edge.cells import CellPool
from edge.prefix import PrefixCache, Snapshot, shared_prefix
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

    @property
    def unified(self) -> bool:
        """Whether all sequences draw from one pool; else the busy slots should be neighbours, to be computed together."""
        ...

    def copy(self, source: int, target: int, end: int) -> bool:
        """Let `target`, which is empty, have positions `0 <= p < end` of `source`; False, and still empty, when that failed."""
        ...

    def truncate(self, slot: int, end: int) -> bool:
        """Drop positions from `end` on; False when that is impossible and nothing was done."""
        ...

    def clear(self, slot: int) -> None:
        """Drop the whole sequence. Never fails."""
        ...

    def save(self, slot: int) -> tuple[Any, int]:
        """Copy a sequence to host memory; also say how many bytes that takes."""
        ...

    def restore(self, slot: int, data: Any) -> bool:
        """Copy a saved sequence into an empty slot; False when it could not be, and the slot is empty still."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the scheduler, in tokens (= KV cells), sequences and bytes.

    `chunk` caps the prompt tokens of a step; `batch` all its tokens. `cache_bytes` caps the snapshots of the prefix cache.
    """

    slots: int
    cells: int
    batch: int
    chunk: int
    cache_bytes: int


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
# A snapshot is restored whole: it is not worth that when more than this many of its tokens come with each one that is shared.
_WORTH_RESTORING = 32
# Finished sequences shorter than this are not worth a place in the prefix cache.
_WORTH_KEEPING = 16
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
        self.cache = PrefixCache(limits.cache_bytes)
        self.preemptions = 0
        self._memory = memory
        self._slots = list(range(limits.slots - 1, -1, -1))
        self._donors: dict[Sequence, tuple[Sequence, int]] = {}

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
        if keep:
            self._save(sequence)
        self._drop(sequence)

    def plan(self) -> list[Item]:
        """Admit who can be, make room, and say what the next step computes. Empty only when nothing runs."""
        self._admit()
        if self.running and not self._memory.unified:
            self._close_gap()
        while self.running:
            decoding = [s for s in self.running if s.is_decoding]
            if self.pool.free < len(decoding):
                self._preempt_newest()
                continue
            items = [Item(s, len(s.cells), self.pool.take(1)) for s in decoding]
            if len(decoding) < len(self.running):
                items += self._prefills(min(self.limits.chunk, self.limits.batch - len(items)))
            if items:
                # llama.cpp computes streams together only when the batch names them in rising order without a gap.
                items.sort(key=_slot_of)
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
        if len(self.running) < 2:
            return False
        self._preempt_newest()
        return True

    def restart(self, sequence: Sequence) -> None:
        """Compute a running sequence from its first token again (its cache contents are not to be trusted)."""
        self.running.remove(sequence)
        self._drop(sequence)
        self.waiting.appendleft(sequence)

    def check_integrity(self) -> None:
        """Assert that slots and cells are where they should be: each held by exactly those who say so."""
        self.pool.check_integrity([s.cells for s in self.running])
        slots = [*self._slots, *(s.slot for s in self.running)]
        assert sorted(slots) == list(range(self.limits.slots)), "a slot is lost or held twice"
        assert all(s.slot < 0 and not s.cells for s in self.waiting)
        assert self.cache.size == sum(snapshot.size for snapshot in self.cache) <= self.limits.cache_bytes

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
        snapshot, saved = self._saved_prefix(sequence)
        donor, shared = self._running_prefix(sequence)
        if donor and shared > max(saved, donor.num_past) + _WORTH_WAITING:
            self._donors[sequence] = donor, shared
            if shared < len(donor.tokens) - 1:  # a step of its own for the donor's last token would gain nobody anything
                donor.boundaries.add(shared)
            return _Admission.DEFERRED
        shared = min(shared, donor.num_past) if donor else 0
        if donor and 0 < shared >= saved and self._memory.reusable(donor.slot, shared):
            snapshot = None
        else:
            donor, shared = None, 0
        # Some headroom, so that a newcomer is not preempted by the next few tokens of those who run.
        wanted = len(sequence.tokens) - shared + 8 * len(self.running)
        if self.pool.free < wanted and self.running:
            return _Admission.NO_ROOM
        sequence.slot = self._lowest_slot()
        if donor:
            self._share(sequence, donor, shared)
        elif snapshot:
            self._restore(sequence, snapshot, saved)
        if not sequence.admitted:
            sequence.admitted, sequence.cached = True, sequence.num_past
        sequence.age = 0
        self.running.append(sequence)
        return _Admission.ADMITTED

    def _still_waits(self, sequence: Sequence) -> bool:
        if sequence not in self._donors:
            return False
        donor, length = self._donors[sequence]
        if donor.slot >= 0 and donor.num_past < length:
            return True
        del self._donors[sequence]
        return False

    def _saved_prefix(self, sequence: Sequence) -> tuple[Snapshot | None, int]:
        snapshot, shared = (None, 0) if sequence.all_logits else self.cache.longest(sequence.tenant, sequence.tokens)
        if snapshot is None:
            return None, 0
        keep = min(shared, len(sequence.tokens) - 1)  # the last token has to be computed: its logits are what is wanted
        length = len(snapshot.tokens)
        if length > self.pool.free or length > _WORTH_RESTORING * keep or not (self._memory.partial or keep == length):
            return None, 0
        return snapshot, keep

    def _running_prefix(self, sequence: Sequence) -> tuple[Sequence | None, int]:
        best, most = None, 0
        if not self._memory.partial or sequence.all_logits:
            return best, most
        for other in self.running:
            if other.tenant == sequence.tenant and other.tokens[: most + 1] == sequence.tokens[: most + 1]:
                best, most = other, min(shared_prefix(other.tokens, sequence.tokens), len(sequence.tokens) - 1)
        return (best, most) if most else (None, 0)

    def _share(self, sequence: Sequence, donor: Sequence, count: int) -> None:
        if self._memory.copy(donor.slot, sequence.slot, count):
            sequence.cells = donor.cells[:count]
            self.pool.share(sequence.cells)

    def _lowest_slot(self) -> int:
        slot = min(self._slots)
        self._slots.remove(slot)
        return slot

    def _close_gap(self) -> None:
        """Move the sequence in the highest slot into the lowest free one, when the slots in use are not neighbours.

        llama.cpp computes streams together only when their numbers follow each other; a gap costs a pass over all weights per
        step.
        """
        last = max(self.running, key=lambda s: s.slot)
        if last.slot < len(self.running):
            return
        target = self._lowest_slot()
        if last.num_past:
            data, size = self._memory.save(last.slot)
            if not size or not self._memory.restore(target, data):
                self._slots.append(target)
                return
            self._memory.clear(last.slot)
        self._slots.append(last.slot)
        last.slot = target

    def _restore(self, sequence: Sequence, snapshot: Snapshot, keep: int) -> None:
        """Bring a snapshot back and cut it to what is shared; where that turns out impossible, begin with nothing."""
        self.cache.touch(snapshot)
        if not self._memory.restore(sequence.slot, snapshot.data):
            return
        is_whole = keep == len(snapshot.tokens) or self._memory.truncate(sequence.slot, keep)
        if is_whole and self._memory.reusable(sequence.slot, keep):
            sequence.cells = self.pool.take(keep)
        else:
            self._memory.clear(sequence.slot)

    def _prefills(self, budget: int) -> list[Item]:
        """Share the budget: shortest rest first, so that most get their first token soon; age makes up for length."""
        items = []
        prefilling = [s for s in self.running if not s.is_decoding]
        prefilling.sort(key=lambda s: s.num_missing - s.age * self.limits.chunk // 4)
        for sequence in prefilling:
            count = min(budget, self._chunk_of(sequence), self.pool.free)
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

    def _preempt_newest(self) -> None:
        victim = self.running.pop()
        self._save(victim)
        self._drop(victim)
        self.waiting.appendleft(victim)
        self.preemptions += 1

    def _save(self, sequence: Sequence) -> None:
        """Keep what was computed of a sequence, unless a snapshot covers it already or it is too large to keep."""
        if sequence.num_past < _WORTH_KEEPING or not self.limits.cache_bytes:
            return
        tokens = sequence.tokens[: sequence.num_past]
        cover, shared = self.cache.longest(sequence.tenant, tokens)
        if cover and shared == len(tokens) and self._memory.partial:
            self.cache.touch(cover)
            return
        data, size = self._memory.save(sequence.slot)
        if 0 < size <= self.limits.cache_bytes:
            self.cache.add(Snapshot(sequence.tenant, tokens, data, size))

    def _drop(self, sequence: Sequence) -> None:
        self._memory.clear(sequence.slot)
        self.pool.release(sequence.cells)
        self._slots.append(sequence.slot)
        sequence.slot, sequence.cells = -1, []
        sequence.boundaries.clear()


def _slot_of(item: Item) -> int:
    return item.sequence.slot
