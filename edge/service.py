"""The GGUF engine of one child: model, context, scheduler and the thread that runs them, put together."""

from collections.abc import Iterable
from time import monotonic

import numpy as np
import psutil

from backends.child.cpu import usable_threads
from backends.child.errors import LoadError
from backends.child.prepare import Preparer, scores_prompt
from backends.child.work import Emit
from backends.gguf.kv_cache import kv_bytes_per_token
from backends.gguf.read import read_gguf
from backends.text.constraint import Constraint
from backends.types import GenerateRequest
from edge.config import EdgeConfig
from edge.embedding import EmbeddingQueue
from edge.llama import native
from edge.llama.context import Context
from edge.llama.model import Model
from edge.loop import Loop
from edge.precision import cache_types
from edge.sampling import Sampler
from edge.scheduler import KvMemory, Limits, Scheduler
from edge.sequence import Sequence
from edge.work import Work

_DEFAULT_CONTEXT = 4096
_LEAST_CONTEXT = 512


class Service:
    """Implements `backends.child.service.Service`. The constructor loads, and raises LoadError."""

    def __init__(self, name: str, config: EdgeConfig, emit: Emit) -> None:
        began = monotonic()
        native.start()
        self._config = config
        self._threads = config.threads or usable_threads()
        self._cache_types = cache_types(config, on_gpu=native.uses_gpu(config.gpu_layers))
        self._model = Model(config.path, gpu_layers=config.gpu_layers, mmap=config.mmap)
        self.vocabulary = self._model.vocabulary
        self.embedding = EmbeddingQueue(
            self._model, threads=self._threads, batch=config.ubatch, emit=emit, wake=lambda: self._loop.wake()
        )
        self._context = self._make_context(config.context or self._default_cells()) if self._model.can_generate else None
        self.slots = config.slots
        self.context = self._context.cells if self._context else self.embedding.limit
        self.limit = min(self._context.cells_per_sequence if self._context else self.context, self._model.context_train)
        self.card = self._model.card(name, self.limit)
        make_sequence = self._make_sequence if self._model.can_generate else None
        self.preparer = Preparer(self.vocabulary, self._model.chat_template, self.limit, make_sequence)
        self._scheduler = self._make_scheduler()
        self._loop = Loop(self._context, self._scheduler, self.vocabulary, emit, self.embedding.compute_some)
        self._canary()
        self.load_s = monotonic() - began

    def start(self) -> None:
        """Begin to compute."""
        self._loop.start()

    def submit(self, sequences: Iterable[Sequence]) -> None:
        """Queue the choices of a request."""
        self._loop.submit(sequences)

    def finish(self, sequences: Iterable[Sequence]) -> None:
        """Let sequences go before the next step."""
        self._loop.finish(sequences)

    def load(self) -> tuple[int, int]:
        """How many sequences run and wait."""
        return self._loop.load()

    def step_age_s(self) -> float:
        """How long `llama_decode` has been running; 0 when it is not."""
        started = self._loop.figures.step_started
        return monotonic() - started if started else 0.0

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        """Gauges and counters for `/metrics`. The owner thread writes them: each is one number, so none is torn."""
        f, scheduler = self._loop.figures, self._scheduler
        gauges = {
            "kv_cells": float(scheduler.limits.cells),
            "kv_cells_used": float(scheduler.pool.used),
            "prefix_cache_bytes": float(scheduler.cache.size),
            "prefix_cache_entries": float(len(scheduler.cache)),
        }
        counters = {
            "steps_total": float(f.steps),
            "step_tokens_total": float(f.step_tokens),
            "step_native_seconds_total": f.step_native_seconds,
            "step_host_seconds_total": f.step_host_seconds,
            "snapshot_seconds_total": self._context.snapshot_seconds if self._context else 0.0,
            "prompt_tokens_total": float(f.prompt_tokens),
            "prefix_cache_hit_tokens_total": float(f.cached_tokens),
            "decoded_tokens_total": float(f.decoded_tokens),
            "embedded_tokens_total": float(self.embedding.num_tokens),
            "preemptions_total": float(scheduler.preemptions),
            "refused_steps_total": float(f.refused_steps),
        }
        return gauges, counters

    def close(self) -> None:
        """Begin no further step. The end of the process frees the memory."""
        self._loop.close()

    def _default_cells(self) -> int:
        """A useful context for every slot, within a quarter of the memory that is available."""
        config, per_slot = self._config, min(self._model.context_train, _DEFAULT_CONTEXT)
        bytes_per_cell = kv_bytes_per_token(read_gguf(config.path), *self._cache_types)
        while per_slot > _LEAST_CONTEXT and per_slot * config.slots * bytes_per_cell > psutil.virtual_memory().available / 4:
            per_slot //= 2
        return per_slot * config.slots

    def _make_context(self, cells: int) -> Context:
        config = self._config
        return Context(
            self._model,
            cells=cells,
            batch=config.batch,
            ubatch=config.ubatch,
            sequences=config.slots,
            threads=self._threads,
            cache_types=self._cache_types,
            flash_attention=config.flash_attention,
            unified=config.kv_unified,
        )

    def _make_scheduler(self) -> Scheduler:
        config = self._config
        limits = Limits(
            slots=config.slots,
            cells=self.context,
            batch=config.batch,
            chunk=config.prefill_chunk,
            cache_bytes=config.cache_bytes,
        )
        memory: KvMemory = self._context or _NoMemory()
        return Scheduler(limits, memory)

    def _make_sequence(
        self, identifier: int, index: int, request: GenerateRequest, ids: list[int], constraint: Constraint | None
    ) -> Sequence:
        end = self.vocabulary.end_tokens
        work = Work(
            sampler=Sampler(request.sampling, ids, index),
            max_new=self.limit if request.max_tokens is None else request.max_tokens,
            limit=self.limit,
            end_tokens=frozenset(request.stop_token_ids) | (frozenset() if request.ignore_eos else end),
            banned=np.fromiter(end, np.intp, len(end)) if request.ignore_eos else None,
            constraint=constraint,
            logprobs=request.logprobs,
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
        """Compute one token before anybody is told that the model is ready."""
        if self._context is None:
            self.embedding.try_one_token()
        elif not self._loop.try_one_token():
            raise LoadError("llama.cpp loaded the model but cannot compute with it")


class _NoMemory:
    """The memory of a model that generates nothing."""

    partial = False
    unified = True

    def reusable(self, slot: int, end: int) -> bool:
        return False

    def copy(self, source: int, target: int, end: int) -> bool:
        return False

    def truncate(self, slot: int, end: int) -> bool:
        return False

    def clear(self, slot: int) -> None:
        raise AssertionError("an embedding model has no sequences")

    def save(self, slot: int) -> tuple[None, int]:
        return None, 0

    def restore(self, slot: int, data: None) -> bool:
        return False
