"""A model on the torch engine without its process: weights, scheduler, runner, sampler and loop, driven step by step.

Memory of the cache that nobody has written yet, or that was given back, is NaN: whoever reads it answers with an error.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from backends.child.work import Broken, Event
from backends.engine.build import build_engine
from backends.engine.config import EngineConfig
from backends.engine.kv.blocks import Reason
from backends.engine.loop import Loop
from backends.engine.model.weights import ModelWeights, load_weights
from backends.engine.precision.choose import choose
from backends.engine.precision.precisions import Precisions
from backends.engine.sampling.state import RowState
from backends.engine.sampling.work import Work
from backends.engine.scheduling.sequence import Sequence
from backends.engine.shape import ModelShape
from backends.engine.speculation.drafter import Drafter
from backends.engine.weights.open_source import open_source
from backends.types import Sampling
from kernels.ops import Device, open_device

EXACT: dict[str, Any] = {"prefill": "fp32", "decode": "fp32", "head": "fp32", "kv": "fp32"}
"""Settings with which everything is float32."""

GREEDY = Sampling(temperature=0)
_LOGITS_AT_ONCE = 256


@dataclass(frozen=True)
class Loaded:
    """Weights, which several engines may share."""

    path: Path
    shape: ModelShape
    weights: ModelWeights
    precisions: Precisions
    settings: dict[str, Any]
    device: Device

    def engine(self, **settings: Any) -> "Harness":
        """An engine with an empty cache. `settings` are fields of `EngineConfig`, none of them about weights."""
        return Harness(self, EngineConfig(path=str(self.path), **(self.settings | settings)))


def load(path: Path, **settings: Any) -> Loaded:
    """Load a model in the precisions of `EngineConfig`."""
    source = open_source(path)
    device = open_device(threads=1)
    precisions = choose(EngineConfig(path=str(path), **settings), source, device)
    with torch.inference_mode():
        weights = load_weights(source, precisions, device)
    source.close()
    return Loaded(path, source.shape, weights, precisions, settings, device)


class Harness:
    """One engine. Its prefix cache outlives the sequences."""

    def __init__(self, loaded: Loaded, config: EngineConfig) -> None:
        self.shape, self._config = loaded.shape, config
        self.engine = build_engine(loaded.shape, loaded.weights, loaded.precisions, config, loaded.device)
        self.scheduler = self.engine.scheduler
        self.loop = Loop(self.engine.runner, self.scheduler, lambda token: b"", self._take, threads=1)
        self.most_running = 0
        self._requests = 0
        self._poisoned: list[set[int]] = [set() for _ in self.engine.pools]

    @staticmethod
    def _take(events: list[Event]) -> None:
        assert not any(isinstance(event, Broken) for event in events), "a logit is not finite"

    def begin(
        self,
        prompt: Many[int],
        new: int,
        *,
        choices: Iterable[int] = (0,),
        sampling: Sampling = GREEDY,
        score: bool = False,
    ) -> list[Sequence]:
        """Submit choices of one request, by their indices; with `score` the logits of all the prompt are wanted."""
        begun = [self._sequence(prompt, new, index, sampling, score) for index in choices]
        for sequence in begun:
            self.scheduler.submit(sequence)
        self._requests += 1
        return begun

    def _sequence(self, prompt: Many[int], new: int, index: int, sampling: Sampling, score: bool) -> Sequence:
        tokens = list(prompt)
        return Sequence(
            request=self._requests,
            index=index,
            tenant="",
            tokens=tokens,
            num_prompt=len(tokens),
            all_logits=score,
            work=Work(
                row=RowState(sampling, tokens, index, logprobs=0 if score else None),
                max_new=new,
                limit=min(self.engine.limit, self.scheduler.max_tokens),
                end_tokens=frozenset(),
                drafter=Drafter(frozenset(), self._config.draft_tokens) if self._config.draft_tokens else None,
            ),
        )

    @torch.inference_mode()
    def step(self) -> bool:
        """Run one step and see that the books are right; says whether there was anything to do."""
        self._poison()
        worked = self.loop.step()
        self.scheduler.check_integrity()
        self.most_running = max(self.most_running, len(self.scheduler.running))
        return worked

    def run(self) -> None:
        """Run until nobody waits and nobody runs."""
        while self.step():
            pass

    def generate(
        self, *prompts: Many[int], new: int, choices: Iterable[int] = (0,), sampling: Sampling = GREEDY
    ) -> list[list[int]]:
        """Answer prompts, all at once; the answers of all their choices, one after the other."""
        begun = [self.begin(prompt, new, choices=choices, sampling=sampling) for prompt in prompts]
        self.run()
        return [answer(sequence) for sequences in begun for sequence in sequences]

    @torch.inference_mode()
    def logits(self, tokens: Many[int], num_prompt: int = 0, every: int = 1) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Compute a text whatever the model would say: the first `num_prompt` tokens (0: all) as a prompt, others one by one.

        Args:
            every: logits are wanted behind tokens 0, every, 2 * every, ... and behind each that is decoded.

        Yields:
            Indices of some tokens and the logits behind them, [n, vocab] float32: all at once would be a lot of memory.
        """
        (sequence,) = self.begin(tokens[: num_prompt or len(tokens)], len(tokens), score=True)
        sequence.work.drafter = None
        done, runner = 0, self.engine.runner
        while done < len(tokens):
            self._poison()
            step = self.scheduler.plan()
            assert step is not None
            runner.prepare(step, self.scheduler.running)
            if step.decodes:
                yield [done], runner.decode(step.decodes)
                done += 1
            else:
                (hidden,) = runner.prefill(step.prefills)
                wanted = [i for i in range(len(hidden)) if (done + i) % every == 0]
                for first in range(0, len(wanted), _LOGITS_AT_ONCE):
                    rows = wanted[first : first + _LOGITS_AT_ONCE]
                    yield [done + row for row in rows], runner.logits(hidden[rows])
                done += len(hidden)
            if len(sequence.tokens) == done < len(tokens):
                sequence.tokens.append(tokens[done])
            self.scheduler.commit(step)
        self.scheduler.finish(sequence, keep=False)

    def all_logits(self, tokens: Many[int], num_prompt: int = 0) -> torch.Tensor:
        """What `logits` yields in one tensor, [len(tokens), vocab] float32."""
        return torch.cat([rows for _, rows in self.logits(tokens, num_prompt)])

    def _poison(self) -> None:
        """Make NaN what is in free blocks."""
        pools = zip(self.engine.pools, self.scheduler.manager.pools, self._poisoned, strict=True)
        for number, (memory, pool, poisoned) in enumerate(pools):
            free = {block for block in range(pool.size) if pool.reason(block) is Reason.FREE}
            fresh = sorted(free - poisoned)
            (memory.cache if memory.scales is None else memory.scales)[fresh] = torch.nan
            self._poisoned[number] = free


def answer(sequence: Sequence) -> list[int]:
    """The tokens generated so far."""
    return sequence.tokens[sequence.num_prompt :]
