"""Runs steps as the engine does, on modelled blocks."""

from collections.abc import Callable
from typing import Any

from backends.engine.kv.groups import KvGroup
from backends.engine.kv.manager import BlockManager
from backends.engine.scheduling.limits import Limits
from backends.engine.scheduling.scheduler import Scheduler
from backends.engine.scheduling.sequence import Sequence
from backends.engine.scheduling.step import Step
from tests.backends.engine.scheduling.oracle import Oracle

BLOCK = 4


def sequence(tokens: range | list[int], request: int = 0, index: int = 0, **more: Any) -> Sequence:
    return Sequence(
        request=request, index=index, tokens=list(tokens), num_prompt=len(tokens), tenant=more.pop("tenant", ""), **more
    )


class Driver:
    """A scheduler with a clock that stands still unless told; samples token 1 wherever logits are wanted."""

    def __init__(
        self,
        *,
        windows: tuple[int, ...] = (0,),
        blocks: int | tuple[int, ...] = 64,
        propose: Callable[[Sequence], list[int]] | None = None,
        beside: Callable[[int], int] | None = None,
        share_decoded: bool = False,
        **limits: int,
    ) -> None:
        sizes = blocks if isinstance(blocks, tuple) else (blocks,) * len(windows)
        groups = [KvGroup(window=w, blocks=n, block=BLOCK) for w, n in zip(windows, sizes, strict=True)]
        bounds = {"slots": 4, "budget": 64, "chunk": 16, "context": 1000} | limits
        self.now = 0.0
        self.manager = BlockManager(groups)
        self.scheduler = Scheduler(
            Limits(**bounds),
            self.manager,
            lambda: self.now,
            share_decoded=share_decoded,
            propose=propose,
            prefill_tokens_beside=beside,
        )
        self.oracle = Oracle(self.scheduler, strict=not share_decoded)
        self.last = Step()

    def submit(self, *sequences: Sequence) -> None:
        for s in sequences:
            self.scheduler.submit(s)

    def step(self, answer: list[int] | None = None) -> dict[int, int]:
        """Compute one step, `answer` being what each decoding sequence goes on with; says how many tokens each request got."""
        step = self.scheduler.plan()
        if step is None:
            return {}
        self.oracle.run(step)
        computed: dict[int, int] = {}
        for chunk in step.chunks:
            computed[chunk.sequence.request] = computed.get(chunk.sequence.request, 0) + chunk.end - chunk.start
            if chunk.end == len(chunk.sequence.tokens):
                chunk.sequence.tokens.append(1)
        for s in step.decodes:
            computed[s.request] = computed.get(s.request, 0) + 1 + len(s.draft)
            s.tokens += answer or [1]
        self.scheduler.commit(step)
        self.scheduler.check_integrity()
        self.last = step
        return computed

    def run(self, *sequences: Sequence) -> None:
        """Submit sequences and step until each has its first token."""
        self.submit(*sequences)
        while any(s.num_generated == 0 for s in sequences):
            assert self.step()

    def finish(self, *sequences: Sequence, keep: bool = True) -> None:
        for s in sequences:
            self.scheduler.finish(s, keep=keep)
            self.scheduler.check_integrity()
