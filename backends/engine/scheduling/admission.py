"""Who begins to run: reuse of prefixes, waiting for one that is being computed, room for the whole prompt.

Nobody overtakes a sequence that waits for room or a slot, else a long one would wait for ever. One that waits for a prefix
waits for a sequence that runs, so the wait ends: with the donor's prompt, or when the donor goes.
"""

from enum import Enum, auto

from backends.engine.kv.manager import BlockCopy, BlockManager
from backends.engine.scheduling.donors import best_promise, fork_source
from backends.engine.scheduling.queue import Queue
from backends.engine.scheduling.sequence import Sequence

# Waiting for a prefix that another sequence computes pays off only when that saves more than this many tokens.
_WORTH_WAITING = 16
# A sequence waits for others at most so often.
_MAX_DEFERRALS = 4
# How many waiting sequences are looked at in one step.
_LOOKAHEAD = 32


class _Outcome(Enum):
    ADMITTED = auto()
    DEFERRED = auto()
    NO_ROOM = auto()


class Admission:
    """Moves sequences from `waiting` to `running`, at most `slots` of them at once.

    Args:
        share_decoded: see `Scheduler`.
    """

    def __init__(self, waiting: Queue, running: Queue, slots: int, manager: BlockManager, *, share_decoded: bool) -> None:
        self.prefix_hit_tokens = 0
        self._waiting, self._running = waiting, running
        self._slots = slots
        self._manager = manager
        self._share_decoded = share_decoded

    def admit(self) -> list[BlockCopy]:
        """Admit who can be; returns the copies that have to be made before the next step computes."""
        copies: list[BlockCopy] = []
        position = 0
        while position < min(len(self._waiting), _LOOKAHEAD) and len(self._running) < self._slots:
            outcome = self._try(self._waiting[position], copies)
            if outcome is _Outcome.NO_ROOM:
                break
            if outcome is _Outcome.DEFERRED:
                position += 1
        return copies

    def _try(self, sequence: Sequence, copies: list[BlockCopy]) -> _Outcome:
        if self._still_waits(sequence):
            return _Outcome.DEFERRED
        manager, holding, num_tokens = self._manager, sequence.holding, len(sequence.tokens)
        manager.name(holding, sequence.tokens)
        source, hit = None, 0
        if not sequence.all_logits:
            source = fork_source(sequence, self._running, manager)
            wanted = self._reusable(sequence)
            hit = 0 if source else manager.longest_hit(holding, wanted // manager.block)
            if not source and self._defer(sequence, hit * manager.block, wanted):
                return _Outcome.DEFERRED
        if not self._has_room(sequence, source, hit):
            return _Outcome.NO_ROOM
        if source:
            copies += manager.fork(holding, source.holding, num_tokens - 1)
            self._start(sequence, num_tokens - 1)
        else:
            manager.take_over(holding, hit)
            self._start(sequence, hit * manager.block)
        return _Outcome.ADMITTED

    def _start(self, sequence: Sequence, num_computed: int) -> None:
        self._waiting.remove(sequence)
        sequence.num_computed = num_computed
        if not sequence.admissions:
            sequence.cached = num_computed
            self.prefix_hit_tokens += num_computed
        sequence.admissions += 1
        sequence.running = True
        self._running.add(sequence)

    def _has_room(self, sequence: Sequence, source: Sequence | None, hit: int) -> bool:
        """Whether the whole prompt fits beside what others still need for theirs and a block to spare for each of them."""
        manager, kept = self._manager, [len(self._running)] * len(self._manager.groups)
        for other in self._running:
            outstanding = manager.outstanding(other.holding, len(other.tokens))
            kept = [blocks + more for blocks, more in zip(kept, outstanding, strict=True)]
        if source:
            return all(pool.available > blocks for pool, blocks in zip(manager.pools, kept, strict=True))
        return manager.has_room(sequence.holding, hit, len(sequence.tokens), kept)

    def _still_waits(self, sequence: Sequence) -> bool:
        donor = sequence.donor
        if donor and donor.running and donor.num_computed < sequence.promised:
            return True
        sequence.donor = None
        return False

    def _reusable(self, sequence: Sequence) -> int:
        """How many leading tokens may have been computed for somebody else. The last is not among them: its logits are wanted.

        Nor is what was generated before a preemption: others may have computed it as a part of their prompts.
        """
        most = len(sequence.tokens) - 1
        return most if self._share_decoded else min(most, sequence.num_prompt)

    def _defer(self, sequence: Sequence, hit: int, wanted: int) -> bool:
        """Let a sequence wait for a prefix if somebody is computing one that is much longer than what the cache has."""
        if sequence.deferrals >= _MAX_DEFERRALS:
            return False
        donor, promised = best_promise(sequence, self._running, self._manager.block, wanted)
        if donor is None or promised <= max(hit, donor.num_computed) + _WORTH_WAITING:
            return False
        sequence.donor, sequence.promised = donor, promised
        sequence.deferrals += 1
        self._running.hurry(donor, sequence.due)  # else the urgent one would wait as long as the other can
        return True
