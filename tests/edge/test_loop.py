"""What the owner thread does when llama.cpp refuses: only the request that cannot go on fails, everybody else finishes.

The context is scripted here, because a real one returns these codes only when it is broken; everything around it is real.
"""

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from backends.child.work import Broken, Event, Sampled
from backends.types import Sampling
from edge.llama.batch import Batch
from edge.loop import Loop
from edge.sampling import Sampler
from edge.scheduler import Limits, Scheduler
from edge.sequence import Sequence
from edge.work import Work
from tests.edge.memory import RecordingMemory

_VOCAB = 64


class ScriptedContext(RecordingMemory):
    """Answers `decode` by a script of codes, then with 0; a poisoned token makes every batch that holds it invalid."""

    def __init__(self, codes: list[int], poison: int | None = None) -> None:
        super().__init__()
        self.snapshot_seconds = 0.0
        self.codes, self.poison = codes, poison
        self.decoded: list[list[int]] = []

    def decode(self, batch: Batch) -> int:
        count = batch.native.n_tokens
        tokens = batch.token[:count].tolist()
        code = self.codes.pop(0) if self.codes else 0
        if code == 0 and self.poison in tokens:
            code = -1
        if code == 0:
            self.decoded.append(tokens)
            for i in range(count):
                self.write(int(batch.sequence[i]), int(batch.position[i]), "", [tokens[i]])
        self._rows = int(batch.wants_logits[:count].sum())
        return code

    def logits(self, count: int) -> np.ndarray:
        assert count == self._rows, "asked for other rows than the batch wanted"
        return np.tile(np.arange(_VOCAB, dtype=np.float32), (count, 1))


class Vocabulary:
    """Just enough of a vocabulary."""

    bos = 1

    def piece(self, token: int) -> bytes:
        return b"x"


Run = Callable[..., list[Event]]


@pytest.fixture
def run() -> Iterator[Run]:
    loops: list[Loop] = []

    def start(context: ScriptedContext, *sequences: Sequence) -> list[Event]:
        limits = Limits(slots=4, cells=256, batch=64, chunk=32, cache_bytes=64)
        events: list[Event] = []
        ended = threading.Event()
        left = len(sequences)

        def emit(new: list[Event]) -> None:
            nonlocal left
            events.extend(new)
            left -= sum(isinstance(event, Broken) or getattr(event, "finish", None) is not None for event in new)
            if left <= 0:
                ended.set()

        scheduler = Scheduler(limits, context)
        loop = Loop(context, scheduler, Vocabulary(), emit, lambda: False)  # type: ignore[arg-type]
        loops.append(loop)
        loop.submit(list(sequences))
        loop.start()
        assert ended.wait(20), "a sequence never ended"
        loop.close()
        loop.join(20)
        scheduler.check_integrity()
        return events

    yield start
    for loop in loops:
        loop.close()


def sequence(request: int, *tokens: int, new: int = 3) -> Sequence:
    work = Work(sampler=Sampler(Sampling(temperature=0), [], 0), max_new=new, limit=200, end_tokens=frozenset())
    return Sequence(request=request, index=0, tenant="", tokens=list(tokens), num_prompt=len(tokens), work=work)


def finished(events: list[Event]) -> set[int]:
    return {event.sequence.request for event in events if isinstance(event, Sampled) and event.finish}


def broken(events: list[Event]) -> set[int]:
    return {event.request for event in events if isinstance(event, Broken)}


def test_a_step_without_cells_is_tried_again_after_a_preemption(run: Run) -> None:
    context = ScriptedContext([0, 1])
    events = run(context, sequence(1, 5, 6), sequence(2, 7, 8))
    assert finished(events) == {1, 2}
    assert not broken(events)


def test_a_request_alone_without_cells_fails_and_the_thread_lives_on(run: Run) -> None:
    context = ScriptedContext([1])
    events = run(context, sequence(1, 5, 6))
    assert broken(events) == {1}


def test_an_invalid_batch_fails_only_the_request_that_makes_it_invalid(run: Run) -> None:
    context = ScriptedContext([], poison=13)
    events = run(context, sequence(1, 5, 6), sequence(2, 13, 8), sequence(3, 9, 10))
    assert broken(events) == {2}
    assert finished(events) == {1, 3}


@pytest.mark.parametrize("code", [2, -2, -3])
def test_after_a_fatal_code_sequences_are_computed_again_from_their_start(run: Run, code: int) -> None:
    context = ScriptedContext([0, code])
    events = run(context, sequence(1, 5, 6))
    assert finished(events) == {1}
    assert context.decoded[1] == [5, 6, 63]


def test_a_request_that_keeps_failing_is_given_up(run: Run) -> None:
    context = ScriptedContext([-2] * 10)
    events = run(context, sequence(1, 5, 6))
    assert broken(events) == {1}
    assert len(context.codes) == 7


def test_generation_ends_at_the_token_limit_with_length(run: Run) -> None:
    events = run(ScriptedContext([]), sequence(1, 5, 6, new=4))
    sampled = [event for event in events if isinstance(event, Sampled)]
    assert [event.finish for event in sampled] == [None, None, None, "length"]
