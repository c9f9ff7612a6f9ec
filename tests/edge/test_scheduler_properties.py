"""Random lives of many sequences: whatever happens, the books balance and every token is computed over the right history."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge.scheduler import Item, Limits, Scheduler
from edge.sequence import Sequence
from tests.edge.memory import RecordingMemory

_CELLS = 96


class Lives(RuleBasedStateMachine):
    """Submits, steps, cancels, refuses and finishes in any order, over a cache that is always too small."""

    @initialize(
        slots=st.integers(1, 4),
        cache=st.sampled_from([0, 40, 1000]),
        restores_fail=st.booleans(),
        unified=st.booleans(),
        chunk=st.integers(1, 24),
        window=st.sampled_from([0, 0, 6]),
        partial=st.booleans(),
    )
    def start(self, slots: int, cache: int, restores_fail: bool, unified: bool, chunk: int, window: int, partial: bool) -> None:
        self.memory = RecordingMemory(partial=partial, window=window, restores_fail=restores_fail, unified=unified)
        limits = Limits(slots=slots, cells=_CELLS, batch=32, chunk=chunk, cache_bytes=cache)
        self.scheduler = Scheduler(limits, self.memory)
        self.alive: list[Sequence] = []
        self.requests = 0

    @rule(
        stem=st.integers(0, 3),
        shared=st.integers(0, 30),
        own=st.integers(1, 30),
        tenant=st.sampled_from("ab"),
        all_logits=st.booleans(),
    )
    def submit(self, stem: int, shared: int, own: int, tenant: str, all_logits: bool) -> None:
        self.requests += 1
        unique = 10_000 + self.requests * 50
        tokens = [*range(stem * 100, stem * 100 + shared), *range(unique, unique + own)]
        sequence = Sequence(
            request=self.requests, index=0, tenant=tenant, tokens=tokens, num_prompt=len(tokens), all_logits=all_logits
        )
        self.scheduler.submit(sequence)
        self.alive.append(sequence)

    @rule(samples=st.lists(st.integers(0, 20), min_size=8, max_size=8))
    def step(self, samples: list[int]) -> None:
        items = self.scheduler.plan()
        assert items or not self.scheduler.running, "sequences run but nothing is computed"
        assert items or not self.scheduler.waiting, "sequences wait although nothing runs"
        assert sum(len(item.cells) for item in items) <= self.scheduler.limits.batch
        for item in items:
            self._compute(item)
        self.scheduler.commit(items)
        for item, token in zip(items, samples, strict=False):
            sequence = item.sequence
            if sequence.num_missing == 0:
                sequence.tokens.append(token)
                if len(sequence.tokens) >= _CELLS or sequence.num_generated >= 12:
                    self._end(sequence, keep=True)

    def _compute(self, item: Item) -> None:
        sequence = item.sequence
        history = [(sequence.tenant, token) for token in sequence.tokens[: item.start]]
        held = self.memory.slots.get(sequence.slot, [])
        assert held == history, "computed over another history than its own"
        end = item.start + len(item.cells)
        self.memory.write(sequence.slot, item.start, sequence.tenant, sequence.tokens[item.start : end])

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), keep=st.booleans())
    def cancel(self, data: st.DataObject, keep: bool) -> None:
        self._end(data.draw(st.sampled_from(self.alive)), keep)

    @rule()
    def llama_finds_no_cells(self) -> None:
        items = self.scheduler.plan()
        self.scheduler.rollback(items)
        if not self.scheduler.relieve():
            assert len(self.scheduler.running) <= 1

    @precondition(lambda self: self.scheduler.running)
    @rule(data=st.data())
    def llama_loses_a_sequence(self, data: st.DataObject) -> None:
        self.scheduler.restart(data.draw(st.sampled_from(self.scheduler.running)))

    @rule()
    def clear_cache(self) -> None:
        self.scheduler.cache.clear()

    def _end(self, sequence: Sequence, keep: bool) -> None:
        self.scheduler.finish(sequence, keep=keep)
        self.scheduler.finish(sequence, keep=keep)  # a second time is harmless
        self.alive.remove(sequence)

    @invariant()
    def books_balance(self) -> None:
        scheduler = self.scheduler
        scheduler.check_integrity()
        assert len(scheduler.running) + len(scheduler.waiting) == len(self.alive)
        for sequence in scheduler.running:
            assert len(self.memory.slots.get(sequence.slot, [])) == sequence.num_past
        for snapshot in scheduler.cache:
            assert snapshot.data[0] == [(snapshot.tenant, token) for token in snapshot.tokens]
        used = {s.slot for s in scheduler.running}
        assert {slot for slot, held in self.memory.slots.items() if held} <= used, "a freed slot still holds keys and values"

    def teardown(self) -> None:
        if not hasattr(self, "alive"):
            return
        for _ in range(2000):  # everybody finishes in the end
            if not self.alive:
                break
            self.step([1] * 8)
        assert not self.alive
        assert self.scheduler.pool.free == _CELLS


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
