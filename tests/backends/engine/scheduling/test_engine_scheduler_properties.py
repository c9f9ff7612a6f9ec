"""Random lives of many sequences: whatever happens, the books balance and every token is computed over its own history."""

import random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backends.engine.kv.blocks import Reason
from backends.engine.kv.groups import KvGroup
from backends.engine.kv.manager import BlockManager
from backends.engine.scheduling.limits import Limits
from backends.engine.scheduling.scheduler import Scheduler
from backends.engine.scheduling.sequence import Sequence
from tests.backends.engine.scheduling.oracle import Oracle

_CONTEXT = 60
_WINDOWS = [(0,), (0, 6), (5,), (0, 1), (9, 3), (0, 4, 12)]


class Lives(RuleBasedStateMachine):
    """Submits, steps, cancels, breaks and finishes in any order, over pools that are always too small."""

    @initialize(
        slots=st.integers(1, 5),
        block=st.sampled_from([1, 3, 4]),
        windows=st.sampled_from(_WINDOWS),
        tokens=st.integers(30, 110),
        spare=st.integers(0, 20),
        budget=st.integers(1, 30),
        chunk=st.integers(1, 24),
        share_decoded=st.booleans(),
        draft_below=st.integers(0, 4),
        seed=st.integers(0, 9),
    )
    def start(
        self,
        slots: int,
        block: int,
        windows: tuple[int, ...],
        tokens: int,
        spare: int,
        budget: int,
        chunk: int,
        share_decoded: bool,
        draft_below: int,
        seed: int,
    ) -> None:
        needed = [KvGroup(window=w, blocks=1, block=block).needed(tokens) for w in windows]
        groups = [KvGroup(window=w, blocks=n + (spare if w else 0), block=block) for w, n in zip(windows, needed, strict=True)]
        limits = Limits(slots=slots, budget=slots + budget, chunk=chunk, context=_CONTEXT, draft_below=draft_below)
        self.random = random.Random(seed)
        self.now = 0.0
        self.manager = BlockManager(groups)
        self.scheduler = Scheduler(
            limits, self.manager, lambda: self.now, share_decoded=share_decoded, propose=lambda _: self._tokens(6)
        )
        self.oracle = Oracle(self.scheduler, strict=not share_decoded)
        self.alive: list[Sequence] = []
        self.requests = 0

    @rule(
        stem=st.integers(0, 2),
        shared=st.integers(0, 40),
        own=st.integers(1, 20),
        choices=st.sampled_from([1, 1, 1, 2, 4]),
        tenant=st.sampled_from(["a", "a", "b"]),
        adapter=st.sampled_from(["", "", "x"]),
        priority=st.integers(-2, 2),
        all_logits=st.sampled_from([False, False, False, True]),
    )
    def submit(
        self, stem: int, shared: int, own: int, choices: int, tenant: str, adapter: str, priority: int, all_logits: bool
    ) -> None:
        self.requests += 1
        unique = 10_000 + self.requests * 50
        prompt = [*range(stem * 100, stem * 100 + shared), *range(unique, unique + own)][: self.scheduler.max_tokens - 1]
        self.scheduler.check_fits(len(prompt))
        for index in range(choices):
            sequence = Sequence(
                request=self.requests,
                index=index,
                tenant=tenant,
                adapter=adapter,
                tokens=list(prompt),
                num_prompt=len(prompt),
                priority=priority,
                all_logits=all_logits,
            )
            self.scheduler.submit(sequence)
            self.alive.append(sequence)

    @rule(cancelled=st.integers(-12, 2))
    def step(self, cancelled: int) -> None:
        self._step([s for s in self.alive if s.running][: max(0, cancelled)])

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), breaks=st.booleans())
    def cancel(self, data: st.DataObject, breaks: bool) -> None:
        self._end(data.draw(st.sampled_from(self.alive)), breaks)

    @invariant()
    def books_balance(self) -> None:
        self.scheduler.check_integrity()
        assert len(self.scheduler.running) + len(self.scheduler.waiting) == len(self.alive)
        assert 0 <= self.scheduler.kv_waste() < 1

    def teardown(self) -> None:
        if not hasattr(self, "alive"):
            return
        for _ in range(3000):  # everybody finishes in the end
            if not self.alive:
                break
            self._step([])
            self.scheduler.check_integrity()
        assert not self.alive
        assert self.scheduler.plan() is None
        assert all(pool.count(Reason.RUNNING) == 0 for pool in self.manager.pools)

    def _step(self, cancelled: list[Sequence]) -> None:
        step = self.scheduler.plan()
        if step is None:
            assert not self.alive, "sequences wait although nothing runs"
            return
        limits, first = self.scheduler.limits, self.scheduler.running[0]
        assert step.num_tokens <= limits.budget
        assert sum(c.end - c.start for c in step.chunks) <= limits.prefill_tokens_beside(len(step.decodes))
        assert all(len(s.tokens) + len(s.draft) <= self.scheduler.max_tokens for s in step.decodes)
        assert len(step.decodes) == sum(s.is_decoding for s in self.scheduler.running), "a stream stands still"
        assert first in step.decodes or first in [c.sequence for c in step.chunks], "the most urgent stands still"
        self.oracle.run(step)
        for chunk in step.chunks:
            if chunk.end == len(chunk.sequence.tokens):
                chunk.sequence.tokens += self._tokens(1)
        for sequence in step.decodes:
            accepted = self.random.randint(0, len(sequence.draft))
            sequence.tokens += sequence.draft[:accepted] + self._tokens(1)
        for sequence in cancelled:  # while the step was computed
            self._end(sequence, breaks=False)
        self.scheduler.commit(step)
        for sequence in list(self.alive):
            if len(sequence.tokens) > self.scheduler.max_tokens or sequence.num_generated >= 15:
                self._end(sequence, breaks=False)

    def _end(self, sequence: Sequence, breaks: bool) -> None:
        if breaks:
            self.oracle.break_down(sequence)
        self.scheduler.finish(sequence, keep=not breaks)
        self.scheduler.finish(sequence, keep=not breaks)  # a second time is harmless
        self.alive.remove(sequence)

    def _tokens(self, count: int) -> list[int]:
        """Few different ones, so that answers repeat each other and drafts are right by chance."""
        return [self.random.randrange(2) for _ in range(count)]


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_many_choices_of_few_prompts_share_blocks_rightly_when_all_is_scarce() -> None:
    """The same machine on a diet: what random rules seldom meet happens here all the time."""
    for seed in range(80):
        chance = random.Random(seed)
        lives = Lives()
        lives.start(
            slots=chance.randint(2, 5),
            block=chance.choice([1, 3, 4]),
            windows=chance.choice(_WINDOWS),
            tokens=chance.randint(60, 100),
            spare=chance.randint(0, 20),
            budget=chance.randint(4, 30),
            chunk=chance.randint(4, 24),
            share_decoded=chance.random() < 0.3,
            draft_below=chance.choice([0, 2, 4]),
            seed=seed,
        )
        for _ in range(60):
            if len(lives.alive) < 12 and chance.random() < 0.4:
                lives.submit(
                    stem=0,
                    shared=chance.choice([0, 8, 24, 30]),
                    own=chance.choice([1, 2, 3, 9]),
                    choices=chance.choice([1, 2, 4]),
                    tenant="a",
                    adapter="",
                    priority=chance.randint(-2, 2),
                    all_logits=chance.random() < 0.1,
                )
            lives.step(cancelled=chance.randint(-20, 1))
            lives.wait(chance.random())
            if lives.alive and chance.random() < 0.05:
                lives._end(chance.choice(lives.alive), breaks=chance.random() < 0.5)
            lives.books_balance()
        lives.teardown()
