"""All sequences of one model, from submission to release: admission, prefix reuse, the plan of each step, preemption.

A step holds one token of every decoding sequence first, then a bounded part of prompts, so running streams never wait for a
whole prompt. A sequence is admitted when there are blocks for its prompt, beside what those that run still need for theirs;
not for the answer it may never give. When blocks run out, the least urgent sequence is preempted: it waits again, what it
computed of its prompt stays in the prefix cache while it can, and nobody is admitted in that step. When it goes on, what it
had generated is computed again by the decode weights, as it was: preemption changes no answer. The most urgent one advances in
every step, so everything ends. A sequence whose prefix is being computed by another right now waits for that.

The owner's turn, in this order:

1. `plan()`; make the copies of the step, then compute it.
2. Sample, and append to `tokens`: one token to each sequence whose chunk ended with its last token; to each decoding one the
   accepted tokens of its draft and one more.
3. `commit(step)`. Accepted drafts are those that the appended tokens repeat.
4. `finish()` those that are complete. A sequence must not go on with more than `max_tokens` tokens.

`finish` may be called at any other time as well, but not between `plan` and the end of the computation. Source: Agrawal et al.
2024, Sarathi-Serve, section 4 (chunked prefills beside decodes).
"""

from collections.abc import Callable

from backends.engine.kv.blocks import Reason
from backends.engine.kv.manager import BlockManager
from backends.engine.scheduling.admission import Admission
from backends.engine.scheduling.limits import Limits
from backends.engine.scheduling.queue import Queue
from backends.engine.scheduling.sequence import Sequence
from backends.engine.scheduling.share import share_out
from backends.engine.scheduling.step import Step
from backends.engine.scheduling.urgency import PrefillCost, due
from backends.errors import ContextOverflow


class Scheduler:
    """Belongs to one thread; others may read the counters, `kv_waste` and the lengths of `waiting` and `running`.

    Args:
        manager: all blocks of the model.
        clock: seconds, rising.
        share_decoded: whether blocks with tokens computed by the decode weights are shared as well. Wrong unless these are the
            prefill weights: a prompt would depend on whether the cache held the answer before it.
        propose: guesses the tokens that follow; asked for decoding sequences while few of them run.
        prefill_tokens_beside: how many prompt tokens a step may hold beside so many decoding sequences, instead of the limits'
            fixed chunk; at least one token is computed.
        cost: how long prefills take.
    """

    def __init__(
        self,
        limits: Limits,
        manager: BlockManager,
        clock: Callable[[], float],
        *,
        share_decoded: bool = False,
        propose: Callable[[Sequence], list[int]] | None = None,
        prefill_tokens_beside: Callable[[int], int] | None = None,
        cost: PrefillCost | None = None,
    ) -> None:
        self.limits = limits
        self.manager = manager
        self.waiting = Queue()
        self.running = Queue()
        self.preemptions = 0
        self._admission = Admission(self.waiting, self.running, limits.slots, manager, share_decoded=share_decoded)
        self._clock = clock
        self._share_decoded = share_decoded
        self._propose = propose
        self._prefill_tokens_beside = prefill_tokens_beside or limits.prefill_tokens_beside
        self._cost = cost or PrefillCost()
        self._submitted = 0

    @property
    def prefix_hit_tokens(self) -> int:
        """Tokens that did not have to be computed when their sequence was first admitted, so far."""
        return self._admission.prefix_hit_tokens

    @property
    def max_tokens(self) -> int:
        """The most tokens, prompt and answer, of a sequence."""
        return min(self.limits.context, self.manager.max_tokens)

    def check_fits(self, num_tokens: int) -> None:
        """Check that a prompt of `num_tokens`, and one token of an answer, can be computed.

        Raises:
            ContextOverflow: it can never be, however long it waits.
        """
        if num_tokens + 1 > self.limits.context:
            raise ContextOverflow(
                f"this model's maximum context length is {self.limits.context} tokens, and the prompt has {num_tokens} tokens"
            )
        if num_tokens + 1 > self.max_tokens:
            raise ContextOverflow(
                f"the KV cache holds {self.max_tokens} tokens, too few for the {num_tokens} tokens of the prompt and an answer"
            )

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence, for which `check_fits` holds. Those of one request with the same prompt share its computation.

        Raises:
            ValueError: there is no such priority.
        """
        assert 0 < len(sequence.tokens) <= self.max_tokens
        sequence.due = due(self._clock(), sequence.priority, self._cost.seconds(len(sequence.tokens)))
        sequence.number = self._submitted
        self._submitted += 1
        self.manager.open(sequence.holding, sequence.tenant, sequence.adapter)
        self.waiting.add(sequence)

    def finish(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Let a sequence go, in whatever state it is; nothing happens when it was let go before.

        Blocks that were computed completely stay for others, also those of a sequence that was cancelled: their content does
        not depend on how it ended. Without `keep` they do not: for a sequence that broke.
        """
        if sequence.finished:
            return
        sequence.finished = True
        sequence.donor = None
        (self.running if sequence.running else self.waiting).remove(sequence)
        sequence.running = False
        self.manager.release(sequence.holding, keep=keep)

    def plan(self) -> Step | None:
        """Make room, admit who can be, and say what the next step computes. None only when nothing runs and nothing waits."""
        step = Step()
        preempted = self._make_room()
        if self.waiting and not preempted:
            step.copies = self._admission.admit()
        if not self.running:
            return None
        prefilling = []
        for sequence in self.running:
            if sequence.is_decoding:
                self.manager.grow(sequence.holding, len(sequence.tokens))
                step.decodes.append(sequence)
            else:
                prefilling.append(sequence)
        if self._propose and 0 < len(step.decodes) <= self.limits.draft_below:
            self._draft(step, self._propose, reserved=self.manager.block if prefilling else 0)
        if prefilling:
            self._prefill(step, prefilling)
        return step

    def commit(self, step: Step) -> None:
        """The step was computed and the sampled tokens were appended. Sequences that were let go since are passed over.

        The newest token of a sequence never counts as computed: where none could be appended, the last one is computed again.
        """
        manager = self.manager
        for chunk in step.chunks:
            sequence = chunk.sequence
            if not sequence.finished:
                sequence.num_computed = min(chunk.end, len(sequence.tokens) - 1)
                self._enter(sequence)
                manager.slide(sequence.holding, sequence.num_computed)
        for sequence in step.decodes:
            if sequence.finished:
                continue
            sequence.num_computed += _count_valid(sequence)
            if sequence.draft:
                sequence.draft = []
                manager.trim(sequence.holding, len(sequence.tokens))
            self._enter(sequence)
            manager.slide(sequence.holding, sequence.num_computed)

    def kv_waste(self) -> float:
        """The part of the token places in blocks held by sequences that holds no token, between steps; 0 when none is held.

        May be called by other threads; what they see in the midst of a step is approximate.
        """
        pools = self.manager.pools
        places = sum(pool.count(Reason.RUNNING) for pool in pools) * self.manager.block
        # Shared blocks are full: only what is behind a sequence's last token is empty, and nobody else's.
        empty = sum(s.holding.num_blocks * self.manager.block - s.num_computed for s in self.running) * len(pools)
        return min(1.0, max(0.0, empty / places)) if places else 0.0

    def check_integrity(self) -> None:
        """Assert that sequences and blocks are where they should be."""
        assert len(self.running) <= self.limits.slots
        self.waiting.check_integrity()
        self.running.check_integrity()
        assert all(s.running and s.donor is None for s in self.running)
        assert all(not s.running and s.num_computed == s.holding.num_blocks == 0 for s in self.waiting)
        assert all(0 <= s.num_computed <= s.holding.num_blocks * self.manager.block for s in self.running)
        self.manager.check_integrity(s.holding for s in self.running)

    def _make_room(self) -> bool:
        """Preempt until all decoding sequences, and the most urgent one in any case, can advance; says if it had to."""
        block, preempted = self.manager.block, False
        while self.running:
            first = self.running[0]
            wanted = sum(s.num_computed >= s.holding.num_blocks * block for s in self.running if s.is_decoding or s is first)
            if wanted <= self.manager.available:
                break
            assert len(self.running) > 1, f"{len(first.tokens)} tokens do not fit the KV cache"
            self._preempt(self.running.pop_last())
            preempted = True
        return preempted

    def _preempt(self, sequence: Sequence) -> None:
        self.manager.release(sequence.holding, keep=True)
        sequence.running = False
        sequence.num_computed = 0
        self.waiting.add(sequence)
        self.preemptions += 1

    def _enter(self, sequence: Sequence) -> None:
        """Let others find what was computed."""
        end = sequence.num_computed if self._share_decoded else min(sequence.num_computed, sequence.num_prompt)
        self.manager.enter(sequence.holding, sequence.tokens, end)

    def _draft(self, step: Step, propose: Callable[[Sequence], list[int]], reserved: int) -> None:
        """Add drafts while tokens and blocks last, leaving `reserved` tokens, and a block for them, to prompts."""
        tokens = self.limits.budget - len(step.decodes) - reserved
        for sequence in step.decodes:
            end = min(self.manager.room(sequence.holding) - reserved, self.max_tokens)
            most = min(tokens, end - len(sequence.tokens))
            if most > 0:
                sequence.draft = propose(sequence)[:most]
                self.manager.grow(sequence.holding, len(sequence.tokens) + len(sequence.draft))
                tokens -= len(sequence.draft)

    def _prefill(self, step: Step, prefilling: list[Sequence]) -> None:
        left = self.limits.budget - step.num_tokens
        budget = min(left, max(1, self._prefill_tokens_beside(len(step.decodes))))
        for chunk in share_out(prefilling, budget, self.manager.available, self.manager.block):
            self.manager.grow(chunk.sequence.holding, chunk.end)
            (step.prefills if chunk.start < chunk.sequence.num_prompt else step.replays).append(chunk)


def _count_valid(sequence: Sequence) -> int:
    """How many of the step's tokens, the newest and its draft, belong to the sequence."""
    first = sequence.num_computed + 1
    appended = sequence.tokens[first : first + len(sequence.draft)]
    accepted = next((i for i, (a, b) in enumerate(zip(appended, sequence.draft, strict=False)) if a != b), len(appended))
    return min(1 + accepted, sequence.num_missing - 1)
