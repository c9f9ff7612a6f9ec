"""The engine of one child: model, context, scheduler and the thread that runs them, put together and taken apart in order."""

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

import psutil

from backends.errors import Failed
from backends.gguf.kv_cache import kv_bytes_per_token
from backends.gguf.read import read_gguf
from backends.types import ModelCard
from edge.config import EdgeConfig
from edge.cpu import usable_threads
from edge.llama import native
from edge.llama.context import Context
from edge.llama.embedder import Embedder
from edge.llama.model import LoadError, Model
from edge.loop import Loop
from edge.precision import cache_types
from edge.prepare import Preparer
from edge.scheduler import KvMemory, Limits, Scheduler
from edge.work import Broken, EmbedJob, Event, Vectors

_LONGEST_EMBEDDING = 2048
_DEFAULT_CONTEXT = 4096
_LEAST_CONTEXT = 512
_EMBEDDINGS_AT_ONCE = 16


class Service:
    """Loads in the constructor, which takes as long as the file is large. Raises LoadError."""

    def __init__(self, name: str, config: EdgeConfig, emit: Callable[[list[Event]], None]) -> None:
        began = monotonic()
        native.start()
        self._config, self._emit = config, emit
        self._threads = config.threads or usable_threads()
        self._cache_types = cache_types(config, on_gpu=native.uses_gpu(config.gpu_layers))
        self.model = Model(config.path, gpu_layers=config.gpu_layers, mmap=config.mmap)
        train = self.model.context_train
        self.context = self._context(config.context or self._default_cells()) if self.model.can_generate else None
        self.cells = self.context.cells if self.context else min(train, _LONGEST_EMBEDDING)
        self.limit = min(self.context.cells_per_sequence if self.context else self.cells, train)
        self.card: ModelCard = self.model.card(name, self.limit)
        self.preparer = Preparer(self.model, self.limit)
        self.embedding_limit = min(train, _LONGEST_EMBEDDING)
        self._embedder: Embedder | None = None
        self._jobs: deque[EmbedJob] = deque()
        self._jobs_lock = threading.Lock()
        self.scheduler = self._scheduler()
        self.loop = Loop(self.context, self.scheduler, self.model.vocabulary, emit, self._embed_some)
        self._canary()
        self.load_s = monotonic() - began

    def _default_cells(self) -> int:
        """A useful context for every slot, within a quarter of the memory that is available."""
        config, per_slot = self._config, min(self.model.context_train, _DEFAULT_CONTEXT)
        bytes_per_cell = kv_bytes_per_token(read_gguf(config.path), *self._cache_types)
        while per_slot > _LEAST_CONTEXT and per_slot * config.slots * bytes_per_cell > psutil.virtual_memory().available / 4:
            per_slot //= 2
        return per_slot * config.slots

    def _context(self, cells: int) -> Context:
        config = self._config
        return Context(
            self.model,
            cells=cells,
            batch=config.batch,
            ubatch=config.ubatch,
            sequences=config.slots,
            threads=self._threads,
            cache_types=self._cache_types,
            flash_attention=config.flash_attention,
            unified=config.kv_unified,
        )

    def _scheduler(self) -> Scheduler:
        config = self._config
        limits = Limits(
            slots=config.slots,
            cells=self.cells,
            batch=config.batch,
            chunk=config.prefill_chunk,
            cache_bytes=config.cache_bytes,
        )
        memory: KvMemory = self.context or _NoMemory()
        return Scheduler(limits, memory)

    def _canary(self) -> None:
        """Compute one token before anybody is told that the model is ready."""
        if self.context is None:
            self._embedding_context().run([[max(self.model.vocabulary.bos, 0)]])
        elif not self.loop.try_one_token():
            raise LoadError("llama.cpp loaded the model but cannot compute with it")

    def embed(self, job: EmbedJob) -> None:
        """Queue texts for embedding; the answer is an event."""
        with self._jobs_lock:
            self._jobs.append(job)
        self.loop.wake()

    def cancel_embedding(self, request: int) -> None:
        """Forget a job that has not finished."""
        with self._jobs_lock:
            self._jobs = deque(job for job in self._jobs if job.request != request)

    def _embedding_context(self) -> Embedder:
        if self._embedder is None:
            self._embedder = Embedder(
                self.model, tokens=self.embedding_limit, sequences=_EMBEDDINGS_AT_ONCE, threads=self._threads
            )
        return self._embedder

    def _embed_some(self) -> bool:
        """Compute one batch of the oldest job, in the owner thread. Generation goes on with its next step afterwards."""
        with self._jobs_lock:
            job = self._jobs[0] if self._jobs else None
        if job is None:
            return False
        try:
            done = self._embed_batch(job)
        except (RuntimeError, LoadError) as error:
            self._emit([Broken(job.request, Failed(str(error)))])
            done = True
        if done:
            with self._jobs_lock:
                if self._jobs and self._jobs[0] is job:
                    self._jobs.popleft()
        return True

    def _embed_batch(self, job: EmbedJob) -> bool:
        batch: list[list[int]] = []
        tokens = 0
        for ids in job.inputs[len(job.vectors) :]:
            if batch and (
                tokens + len(ids) > min(self._config.ubatch, self.embedding_limit) or len(batch) == _EMBEDDINGS_AT_ONCE
            ):
                break
            batch.append(ids)
            tokens += len(ids)
        job.vectors += [vector.astype("<f4").tobytes() for vector in self._embedding_context().run(batch)]
        self.loop.figures.embedded_tokens += tokens
        if len(job.vectors) < len(job.inputs):
            return False
        self._emit([Vectors(job.request, job.vectors)])
        return True

    def close(self) -> None:
        """Free everything; the owner thread must have ended."""
        for part in (self._embedder, self.context, self.model):
            if part is not None:
                part.close()


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
