"""The thread that computes: plan a step, run it, choose tokens, hand on what it brought.

It knows tokens, not text. A bug here ends the process, on purpose: the parent restarts a child that died, but could never
notice one that lives on without this thread.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, perf_counter

import torch

from backends.child.ending import ending
from backends.child.work import Broken, Emit, Event, PromptScored, Sampled
from backends.engine.runner import Runner
from backends.engine.sampling.advance import advance
from backends.engine.sampling.sampler import Chosen
from backends.engine.sampling.score import score_prompt
from backends.engine.scheduling.scheduler import Scheduler
from backends.engine.scheduling.sequence import Sequence
from backends.engine.scheduling.step import Chunk
from backends.errors import BackendError

log = logging.getLogger("baton.engine")

_FAULT = 70  # EX_SOFTWARE
_SCORED_AT_ONCE = 64


@dataclass(slots=True)
class Figures:
    """Counters of the computing thread. Written there, read anywhere."""

    steps: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    host_seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    replayed_tokens: int = 0
    decoded_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    kv_waste: float = 0.0  # after the last step; within one, blocks that are about to be filled would count
    step_started: float = 0.0  # monotonic; 0 while no step runs

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time that this takes to a figure."""
        began = perf_counter()
        yield
        setattr(self, name, getattr(self, name) + perf_counter() - began)


class Loop(threading.Thread):
    """Runs steps while there is work. `submit`, `finish`, `close` and `load` may be called from other threads."""

    def __init__(self, runner: Runner, scheduler: Scheduler, piece: Callable[[int], bytes], emit: Emit, threads: int) -> None:
        super().__init__(name="owner", daemon=True)
        self.figures = Figures()
        self._runner, self._scheduler, self._piece, self._emit = runner, scheduler, piece, emit
        self._threads = threads
        self._inbox: deque[tuple[Callable[[Sequence], None], Sequence]] = deque()
        self._wake = threading.Event()
        self._closing = False

    def submit(self, sequences: Iterable[Sequence]) -> None:
        """Queue the choices of a request."""
        self._post(self._scheduler.submit, sequences)

    def finish(self, sequences: Iterable[Sequence]) -> None:
        """Let sequences go before the next step, whatever state they are in."""
        self._post(self._scheduler.finish, sequences)

    def close(self) -> None:
        """Stop after the current step."""
        self._closing = True
        self._wake.set()

    def load(self) -> tuple[int, int]:
        """How many sequences run and wait."""
        return len(self._scheduler.running), len(self._scheduler.waiting)

    def run(self) -> None:
        """Thread body."""
        try:
            torch.set_num_threads(self._threads)  # per thread that computes, for OpenMP
            with torch.inference_mode():
                while not self._closing:
                    self._wake.clear()
                    while self._inbox:
                        command, sequence = self._inbox.popleft()
                        command(sequence)
                    if not self.step():
                        self._wake.wait()
        except BaseException:
            log.exception("the engine thread failed")
            os._exit(_FAULT)

    def step(self) -> bool:
        """Plan, compute and pass on one step; says whether there was anything to do. For the thread, or instead of it."""
        figures, began = self.figures, perf_counter()
        step = self._scheduler.plan()
        if step is None:
            return False
        figures.step_started = monotonic()
        self._runner.prepare(step, self._scheduler.running)
        events: list[Event] = []
        ended: list[tuple[Sequence, bool]] = []
        computed = figures.prefill_seconds + figures.decode_seconds
        if step.decodes:
            with figures.timed("decode_seconds"):
                logits = self._runner.decode(step.decodes)
            self._choose(logits, step.decodes, events, ended)
        if step.prefills:
            with figures.timed("prefill_seconds"):
                hidden = self._runner.prefill(step.prefills)
            self._begin(step.prefills, hidden, events, ended)
        if step.replays:
            with figures.timed("decode_seconds"):
                hidden = self._runner.replay(step.replays)
            self._resume(step.replays, hidden, events, ended)
        computed = figures.prefill_seconds + figures.decode_seconds - computed
        self._scheduler.commit(step)
        for sequence, keep in ended:
            self._scheduler.finish(sequence, keep=keep)
        figures.kv_waste = self._scheduler.kv_waste()
        figures.step_started = 0.0
        if events:
            self._emit(events)
        figures.steps += 1
        figures.host_seconds += perf_counter() - began - computed
        return True

    def _post(self, command: Callable[[Sequence], None], sequences: Iterable[Sequence]) -> None:
        self._inbox.extend((command, sequence) for sequence in sequences)
        self._wake.set()

    def _begin(
        self, chunks: list[Chunk], hidden: list[torch.Tensor], events: list[Event], ended: list[tuple[Sequence, bool]]
    ) -> None:
        """Score prompts where that is wanted, and choose the next token of each prompt that is complete."""
        complete: list[Sequence] = []
        last: list[torch.Tensor] = []
        for chunk, states in zip(chunks, hidden, strict=True):
            sequence = chunk.sequence
            self.figures.prefilled_tokens += chunk.end - chunk.start
            if sequence.all_logits:
                events.append(self._scored(chunk, states))
            if chunk.end == len(sequence.tokens):
                complete.append(sequence)
                last.append(states[-1:])
                if not sequence.num_generated:
                    self.figures.prompt_tokens += sequence.num_prompt
                    self.figures.cached_tokens += sequence.cached
        if complete:
            self._choose(self._runner.logits(torch.cat(last)), complete, events, ended)

    def _resume(
        self, chunks: list[Chunk], hidden: list[torch.Tensor], events: list[Event], ended: list[tuple[Sequence, bool]]
    ) -> None:
        """Choose the next token of each sequence that is again where it was preempted."""
        self.figures.replayed_tokens += sum(chunk.end - chunk.start for chunk in chunks)
        complete = [chunk.sequence for chunk, states in zip(chunks, hidden, strict=True) if len(states)]
        if complete:
            self._choose(self._runner.logits(torch.cat(hidden)), complete, events, ended)

    def _scored(self, chunk: Chunk, states: torch.Tensor) -> PromptScored:
        """State i predicts token start + i + 1; the token after the prompt's last is no prompt token."""
        sequence = chunk.sequence
        following = sequence.tokens[chunk.start + 1 : min(chunk.end + 1, sequence.num_prompt)]
        scores = []
        for first in range(0, len(following), _SCORED_AT_ONCE):
            part = following[first : first + _SCORED_AT_ONCE]
            logits = self._runner.logits(states[first : first + len(part)])
            scores += score_prompt(logits, part, sequence.work.row.logprobs or 0, self._piece)
        return PromptScored(sequence, chunk.start + 1, scores)

    def _choose(
        self, logits: torch.Tensor, sequences: list[Sequence], events: list[Event], ended: list[tuple[Sequence, bool]]
    ) -> None:
        """Choose tokens, append them, and note who is complete."""
        states, drafts = [sequence.work.row for sequence in sequences], [sequence.draft for sequence in sequences]
        found = advance(logits, states, drafts, self._piece)
        for sequence, tokens in zip(sequences, found, strict=True):
            if isinstance(tokens, BackendError):
                ended.append((sequence, False))
                events.append(Broken(sequence.request, tokens))
            else:
                self._append(sequence, tokens, events, ended)

    def _append(
        self, sequence: Sequence, tokens: list[Chosen], events: list[Event], ended: list[tuple[Sequence, bool]]
    ) -> None:
        figures = self.figures
        if sequence.draft:
            figures.drafted_tokens += len(sequence.draft)
            figures.accepted_tokens += len(tokens) - 1
            if sequence.work.drafter is not None:
                sequence.work.drafter.learn(len(sequence.draft), len(tokens) - 1)
        for chosen in tokens:
            sequence.tokens.append(chosen.token)
            figures.decoded_tokens += 1
            finish = ending(sequence, sequence.work)
            events.append(Sampled(sequence, chosen.token, chosen.scored, finish))
            if finish:
                ended.append((sequence, True))
                break
