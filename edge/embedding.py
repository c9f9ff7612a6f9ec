"""Texts to vectors between the steps of generation, a batch at a time, so that running answers go on in between."""

import threading
from collections import deque
from collections.abc import Callable

from backends.child.errors import LoadError
from backends.child.work import Broken, EmbedJob, Emit, Vectors
from backends.errors import Failed
from edge.llama.embedder import Embedder
from edge.llama.model import Model

_LONGEST_INPUT = 2048
_INPUTS_AT_ONCE = 16


class EmbeddingQueue:
    """Jobs in the order they came; implements `backends.child.embedding.Embedding`.

    Args:
        threads: that one batch may use.
        batch: the most tokens of several inputs computed together.
        wake: makes the owner thread call `compute_some`.

    Attributes:
        size: numbers in a vector.
        limit: the most tokens of one input.
        num_tokens: embedded so far.
    """

    def __init__(self, model: Model, *, threads: int, batch: int, emit: Emit, wake: Callable[[], None]) -> None:
        self.size, self.limit = model.embedding_size, min(model.context_train, _LONGEST_INPUT)
        self.num_tokens = 0
        self._model, self._threads, self._batch = model, threads, min(batch, self.limit)
        self._emit, self._wake = emit, wake
        self._embedder: Embedder | None = None
        self._jobs: deque[EmbedJob] = deque()
        self._lock = threading.Lock()

    def submit(self, job: EmbedJob) -> None:
        """Queue texts; the answer is an event."""
        with self._lock:
            self._jobs.append(job)
        self._wake()

    def cancel(self, request: int) -> None:
        """Forget a job that has not finished."""
        with self._lock:
            self._jobs = deque(job for job in self._jobs if job.request != request)

    def try_one_token(self) -> None:
        """Embed something, before anybody asks. Raises LoadError and RuntimeError."""
        self._context().run([[max(self._model.vocabulary.bos, 0)]])

    def compute_some(self) -> bool:
        """Compute one batch of the oldest job; False when there is none. Called by the owner thread."""
        with self._lock:
            job = self._jobs[0] if self._jobs else None
        if job is None:
            return False
        try:
            done = self._compute_batch(job)
        except (RuntimeError, LoadError) as error:
            self._emit([Broken(job.request, Failed(str(error)))])
            done = True
        if done:
            with self._lock:
                if self._jobs and self._jobs[0] is job:
                    self._jobs.popleft()
        return True

    def _context(self) -> Embedder:
        """The embedding context, made when it is first needed: most chat models never embed."""
        if self._embedder is None:
            self._embedder = Embedder(self._model, tokens=self.limit, sequences=_INPUTS_AT_ONCE, threads=self._threads)
        return self._embedder

    def _compute_batch(self, job: EmbedJob) -> bool:
        batch: list[list[int]] = []
        tokens = 0
        for ids in job.inputs[len(job.vectors) :]:
            if batch and (tokens + len(ids) > self._batch or len(batch) == _INPUTS_AT_ONCE):
                break
            batch.append(ids)
            tokens += len(ids)
        job.vectors += [vector.astype("<f4").tobytes() for vector in self._context().run(batch)]
        self.num_tokens += tokens
        if len(job.vectors) < len(job.inputs):
            return False
        self._emit([Vectors(job.request, job.vectors)])
        return True
