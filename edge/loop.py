"""The thread that owns llama.cpp: plan a step, compute it, sample from it, hand on what it brought.

It knows tokens, not text. A bug here ends the process, on purpose: the parent restarts a child that died, but could never
notice one that lives on without this thread.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic, perf_counter, thread_time

import numpy as np

from backends.child.ending import ending
from backends.child.work import Broken, Emit, Event, PromptScored, Sampled, Scored
from backends.errors import BackendError, Failed
from backends.text.constraint import apply_mask
from backends.types import Alternative
from edge.llama.batch import Batch
from edge.llama.context import Context
from edge.llama.vocabulary import Vocabulary
from edge.sampling import Row, log_probabilities
from edge.scheduler import Item, Scheduler
from edge.sequence import Sequence
from edge.work import Figures, Work

log = logging.getLogger("baton.engine")

_MAX_RESTARTS = 2
_LOWEST_LOGPROB = -9999.0


class Loop(threading.Thread):
    """Runs steps while there is work. All public methods may be called from other threads."""

    def __init__(
        self,
        context: Context | None,
        scheduler: Scheduler,
        vocabulary: Vocabulary,
        emit: Emit,
        between_steps: Callable[[], bool],
    ) -> None:
        """`emit` takes what a step brought; `between_steps` may do a bounded piece of other work and says if it did any."""
        super().__init__(name="owner", daemon=True)
        self.figures = Figures()
        self._context, self._scheduler, self._vocabulary = context, scheduler, vocabulary
        self._emit, self._between_steps = emit, between_steps
        self._batch = Batch(scheduler.limits.batch)
        self._inbox: deque[tuple[Callable[[Sequence], None], Sequence]] = deque()
        self._wake = threading.Event()
        self._closing = False

    def submit(self, sequences: Iterable[Sequence]) -> None:
        """Queue the choices of a request."""
        for sequence in sequences:
            self._inbox.append((self._scheduler.submit, sequence))
        self._wake.set()

    def finish(self, sequences: Iterable[Sequence]) -> None:
        """Let sequences go before the next step, whatever state they are in (cancelled, or ended by a stop string)."""
        for sequence in sequences:
            self._inbox.append((self._scheduler.finish, sequence))
        self._wake.set()

    def wake(self) -> None:
        """Look for work between steps."""
        self._wake.set()

    def close(self) -> None:
        """Stop after the current step."""
        self._closing = True
        self._wake.set()

    def try_one_token(self) -> bool:
        """Compute a token outside any sequence's cache. Call before `start`."""
        self._batch.clear()
        self._batch.add_one(max(self._vocabulary.bos, 0), 0, 0)
        code = self._native.decode(self._batch)
        self._native.clear(0)
        return code == 0

    def load(self) -> tuple[int, int]:
        """How many sequences run and wait."""
        return len(self._scheduler.running), len(self._scheduler.waiting)

    @property
    def _native(self) -> Context:
        assert self._context is not None  # a model that only embeds never has sequences
        return self._context

    def run(self) -> None:
        """Thread body."""
        try:
            while not self._closing:
                self._wake.clear()
                while self._inbox:
                    command, sequence = self._inbox.popleft()
                    command(sequence)
                worked = self._step()
                if not (self._between_steps() or worked):
                    self._wake.wait()
        except BaseException:
            log.exception("the engine thread failed")
            os._exit(70)

    def _step(self) -> bool:
        began, copied = thread_time(), self._copied()
        items = self._scheduler.plan()
        if not items:
            return False
        rows = self._fill(items)
        before = thread_time()
        code = self._decode()
        after = thread_time()
        if code:
            self._recover(code, items)
            return True
        self._scheduler.commit(items)
        events = self._sample(items, rows)
        if events:
            self._emit(events)
        self._count(items, thread_time() - after + before - began - self._copied() + copied)
        return True

    def _decode(self) -> int:
        figures, began = self.figures, perf_counter()
        figures.step_started = monotonic()
        code = self._native.decode(self._batch)
        figures.step_started = 0.0
        figures.step_native_seconds += perf_counter() - began
        return code

    def _copied(self) -> float:
        """CPU seconds spent on snapshots so far: native work, but no part of a decode."""
        return self._context.snapshot_seconds if self._context else 0.0

    def _fill(self, items: list[Item]) -> int:
        """Write the batch; returns the number of logit rows it asks for."""
        batch, rows = self._batch, 0
        batch.clear()
        for item in items:
            sequence, count = item.sequence, len(item.cells)
            if count == 1 and not sequence.all_logits and sequence.is_decoding:
                batch.add_one(sequence.tokens[item.start], item.start, sequence.slot)
                rows += 1
                continue
            end = item.start + count
            is_last = end == len(sequence.tokens)
            run = sequence.tokens[item.start : end]
            batch.add(run, item.start, sequence.slot, all_logits=sequence.all_logits, last_logits=is_last)
            rows += count if sequence.all_logits else int(is_last)
        return rows

    def _count(self, items: list[Item], host: float) -> None:
        figures = self.figures
        figures.steps += 1
        figures.step_host_seconds += host
        figures.step_tokens += sum(len(item.cells) for item in items)

    def _sample(self, items: list[Item], rows: int) -> list[Event]:
        events: list[Event] = []
        if not rows:
            return events
        logits, row = self._native.logits(rows), 0
        for item in items:
            sequence = item.sequence
            if sequence.all_logits:
                count = len(item.cells)
                if item.start < sequence.num_prompt:
                    events.append(self._score_prompt(sequence, item.start, logits[row : row + count]))
                row += count
            elif sequence.num_missing == 0:
                row += 1
            if sequence.num_missing == 0:
                try:
                    events.append(self._next(sequence, logits[row - 1]))
                except BackendError as error:  # a grammar that outgrew its limits
                    self._scheduler.finish(sequence)
                    events.append(Broken(sequence.request, error))
        return events

    def _next(self, sequence: Sequence, row: Row) -> Sampled:
        work: Work = sequence.work
        if not sequence.num_generated:
            self.figures.prompt_tokens += sequence.num_prompt
            self.figures.cached_tokens += sequence.cached
        self.figures.decoded_tokens += 1
        sampler = work.sampler
        scored = None
        if sampler.is_plain_greedy and work.logprobs is None and work.constraint is None and work.banned is None:
            token = int(row.argmax())
        else:
            token, scored = self._choose(work, row)
        sequence.tokens.append(token)
        finish = ending(sequence, work)
        if finish:
            self._scheduler.finish(sequence)
        return Sampled(sequence, token, scored, finish)

    def _choose(self, work: Work, row: Row) -> tuple[int, Scored | None]:
        original = row
        if work.logprobs is not None and (work.sampler.rewrites or work.constraint or work.banned is not None):
            original = row.copy()
        if work.banned is not None:
            row[work.banned] = -np.inf
        if work.constraint is not None:
            apply_mask(row, work.constraint.mask())
        token = work.sampler.sample(row)
        work.sampler.accept(token)
        if work.constraint is not None:
            work.constraint.accept(token)
        return token, None if work.logprobs is None else self._score(original, token, work.logprobs)

    def _score(self, row: Row, token: int, top: int) -> Scored:
        log_total, ids = log_probabilities(row, top)
        piece = self._vocabulary.piece
        alternatives = tuple(Alternative(int(i), piece(int(i)), _clamp(float(row[i]) - log_total)) for i in ids)
        return Scored(_clamp(float(row[token]) - log_total), alternatives)

    def _score_prompt(self, sequence: Sequence, start: int, logits: Row) -> PromptScored:
        """Row i predicts token start + i + 1; the token after the prompt's last is no prompt token."""
        top = sequence.work.logprobs or 0
        following = sequence.tokens[start + 1 : min(start + len(logits) + 1, sequence.num_prompt)]
        scores = [self._score(row, token, top) for row, token in zip(logits, following, strict=False)]
        return PromptScored(sequence, start + 1, scores)

    def _recover(self, code: int, items: list[Item]) -> None:
        """Deal with a step that was not computed; codes as in llama.h, `llama_decode`."""
        self.figures.refused_steps += 1
        log.warning("llama_decode returned %d for %d sequences", code, len(items))
        self._scheduler.rollback(items)
        if code == 1:
            if not self._scheduler.relieve():
                self._fail(items[0].sequence, "the KV cache has no room for this request")
        elif code == -1:
            self._isolate(items)
        else:
            for item in items:  # what was computed of them cannot be known, so none of it is used
                self._restart(item.sequence)

    def _isolate(self, items: list[Item]) -> None:
        """Find the sequence that makes a batch invalid and fail only that."""
        for item in items:
            if len(items) > 1:
                self._fill([item])
                if self._native.decode(self._batch) == 0:
                    self._native.truncate(item.sequence.slot, item.start)
                    continue
            self._fail(item.sequence, "llama.cpp refused the tokens of this request")

    def _restart(self, sequence: Sequence) -> None:
        sequence.work.restarts += 1
        if sequence.work.restarts > _MAX_RESTARTS:
            self._fail(sequence, "llama.cpp failed repeatedly to compute this request")
        else:
            self._scheduler.restart(sequence)

    def _fail(self, sequence: Sequence, message: str) -> None:
        self._scheduler.finish(sequence, keep=False)
        self._emit([Broken(sequence.request, Failed(message))])


def _clamp(logprob: float) -> float:
    return logprob if logprob > _LOWEST_LOGPROB else _LOWEST_LOGPROB
