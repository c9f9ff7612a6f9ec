"""The torch engine of one child: weights, cache, scheduler and the thread that runs them, put together."""

import logging
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import torch
from msgspec.structs import replace

from backends.child.cpu import usable_threads
from backends.child.errors import LoadError
from backends.child.prepare import Preparer, scores_prompt
from backends.child.work import Emit
from backends.engine.build import build_engine
from backends.engine.config import EngineConfig
from backends.engine.kv.blocks import Reason
from backends.engine.loop import Loop
from backends.engine.memory import loading
from backends.engine.model.weights import load_weights
from backends.engine.model_card import describe
from backends.engine.precision.choose import choose
from backends.engine.sampling.state import RowState
from backends.engine.sampling.work import Work
from backends.engine.scheduling.sequence import Sequence
from backends.engine.speculation.drafter import Drafter
from backends.engine.tokenizers.load import load_tokenizer
from backends.engine.weights.open_source import open_source
from backends.text.constraint import Constraint
from backends.types import GenerateRequest, Tokens
from kernels.ops import Device, open_device
from kernels.problems import DeviceError

log = logging.getLogger("baton.engine")


class Service:
    """Implements `backends.child.service.Service`. The constructor loads, and raises LoadError."""

    embedding = None

    def __init__(self, name: str, config: EngineConfig, emit: Emit) -> None:
        began = monotonic()
        path = Path(config.path)
        self._config = config
        threads = config.threads or usable_threads()
        torch.set_num_threads(threads)
        card = describe(name, path)
        source = open_source(path)
        shape = source.shape
        self.vocabulary = load_tokenizer(path)
        if self.vocabulary.size > shape.vocab:
            raise LoadError(f"the tokenizer of {path} has {self.vocabulary.size} tokens, the model only {shape.vocab}")
        device = _open(config, threads)
        precisions = choose(config, source, device)
        with torch.inference_mode(), loading():
            weights = load_weights(source, precisions, device, _report)
        source.close()
        self._memory = weights.memory()
        self._engine = build_engine(shape, weights, precisions, config, device, self.vocabulary.num_used)
        self.context, self.slots = self._engine.cache_tokens, config.slots
        self.limit = min(self._engine.limit, self._engine.scheduler.max_tokens)
        self.card = replace(card, context_length=self.limit)
        self.preparer = Preparer(self.vocabulary, self.vocabulary.chat_template, self.limit, self._make_sequence)
        self._loop = Loop(self._engine.runner, self._engine.scheduler, self.vocabulary.piece, emit, threads)
        self._canary()
        self.load_s = monotonic() - began
        log.info("prefill %s, decode %s, head %s; memory in bytes: %s", *weights.kinds().values(), self._memory)

    def start(self) -> None:
        """Begin to compute."""
        self._loop.start()

    def submit(self, sequences: Iterable[Sequence]) -> None:
        """Queue the choices of one request."""
        self._loop.submit(sequences)

    def finish(self, sequences: Iterable[Sequence]) -> None:
        """Let sequences go before the next step."""
        self._loop.finish(sequences)

    def load(self) -> tuple[int, int]:
        """How many sequences run, and how many wait."""
        return self._loop.load()

    def step_age_s(self) -> float:
        """How long the step that runs now has been running; 0 when none does."""
        started = self._loop.figures.step_started
        return monotonic() - started if started else 0.0

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        """Gauges and counters; each is one number, so reading them while the computing thread writes tears none."""
        f, scheduler = self._loop.figures, self._engine.scheduler
        pools = scheduler.manager.pools
        gauges = {
            "kv_blocks": float(sum(group.blocks for group in scheduler.manager.groups)),
            "kv_blocks_used": float(sum(pool.count(Reason.RUNNING) for pool in pools)),
            "kv_blocks_cached": float(sum(pool.count(Reason.CACHED) for pool in pools)),
            "kv_waste_ratio": f.kv_waste,
            **{f"weights_{part}_bytes": float(size) for part, size in self._memory.items()},
            "kv_cache_bytes": float(self._engine.cache_bytes),
        }
        counters = {
            "steps_total": float(f.steps),
            "step_prefill_seconds_total": f.prefill_seconds,
            "step_decode_seconds_total": f.decode_seconds,
            "step_host_seconds_total": f.host_seconds,
            "prompt_tokens_total": float(f.prompt_tokens),
            "prefix_cache_hit_tokens_total": float(f.cached_tokens),
            "prefilled_tokens_total": float(f.prefilled_tokens),
            "replayed_tokens_total": float(f.replayed_tokens),
            "decoded_tokens_total": float(f.decoded_tokens),
            "drafted_tokens_total": float(f.drafted_tokens),
            "accepted_tokens_total": float(f.accepted_tokens),
            "preemptions_total": float(scheduler.preemptions),
            "kv_evictions_total": float(scheduler.manager.evictions),
        }
        return gauges, counters

    def close(self) -> None:
        """Begin no further step."""
        self._loop.close()

    def _make_sequence(
        self, identifier: int, index: int, request: GenerateRequest, ids: list[int], constraint: Constraint | None
    ) -> Sequence:
        end = self.vocabulary.end_tokens
        end_tokens = frozenset(request.stop_token_ids) | (frozenset() if request.ignore_eos else end)
        work = Work(
            row=RowState(
                request.sampling,
                ids,
                index,
                banned=end if request.ignore_eos else (),
                constraint=constraint,
                logprobs=request.logprobs,
            ),
            max_new=self.limit if request.max_tokens is None else request.max_tokens,
            limit=self.limit,
            end_tokens=end_tokens,
            drafter=Drafter(end_tokens, self._config.draft_tokens) if self._config.draft_tokens else None,
        )
        return Sequence(
            request=identifier,
            index=index,
            tenant=request.tenant,
            tokens=ids,
            num_prompt=len(ids),
            all_logits=scores_prompt(request, ids),
            work=work,
        )

    def _canary(self) -> None:
        """Compute a prompt and a token before anybody is told that the model is ready: what is not compiled yet is compiled."""
        scheduler, runner, token = self._engine.scheduler, self._engine.runner, max(self.vocabulary.bos, 0)
        request = GenerateRequest(id="", model="", prompt=Tokens((token, token)), max_tokens=2)
        sequence = self._make_sequence(-1, 0, request, [token, token], None)
        with torch.inference_mode():
            scheduler.submit(sequence)
            for _ in range(2):
                step = scheduler.plan()
                assert step is not None
                runner.prepare(step, scheduler.running)
                hidden = runner.prefill(step.prefills)[0] if step.prefills else None
                logits = runner.decode(step.decodes) if hidden is None else runner.logits(hidden)
                if not bool(logits[:, : self.vocabulary.num_used].isfinite().all()):
                    raise LoadError(f"the weights in {self._config.path} compute numbers that are not finite")
                sequence.tokens.append(token)
                scheduler.commit(step)
            scheduler.finish(sequence, keep=False)


def _open(config: EngineConfig, threads: int) -> Device:
    try:
        return open_device(config.device, threads=threads)
    except DeviceError as error:
        raise LoadError(str(error)) from error


def _report(done: int, of: int) -> None:
    if done == of or done % 8 == 0:
        log.info("loaded %d of %d layers", done, of)
