"""Texts to vectors, in a context of its own: the KV cache of running chats is never touched.

A pooled input must be computed in one piece, so an input may have at most as many tokens as this context's batch; several
short inputs share a batch. Models without a pooling type of their own (chat models) are pooled by the mean over their last
hidden states.
"""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.child.errors import LoadError
from edge.llama.batch import Batch
from edge.llama.model import Model
from edge.llama.native import lib

_MEAN = lib.LLAMA_POOLING_TYPE_MEAN


class Embedder:
    """Computes normalised embeddings. Used by the thread that owns the model's computation."""

    def __init__(self, model: Model, *, tokens: int, sequences: int, threads: int) -> None:
        """`tokens` bounds one input and one batch; raises LoadError when the memory does not suffice."""
        self.capacity, self.sequences = tokens, sequences
        self._size = model.embedding_size
        self._causal = model.can_generate
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = tokens
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.embeddings = True
        params.kv_unified = True
        params.no_perf = True
        if model.can_generate:
            params.pooling_type = _MEAN
        self.handle: Any = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise LoadError(f"llama.cpp could not create an embedding context of {tokens} tokens: not enough memory?")
        if lib.llama_pooling_type(self.handle) in (lib.LLAMA_POOLING_TYPE_NONE, lib.LLAMA_POOLING_TYPE_RANK):
            raise LoadError("the model's pooling type gives no sentence embeddings")
        self._batch = Batch(tokens)

    def run(self, inputs: list[list[int]]) -> list[npt.NDArray[np.float32]]:
        """Embed inputs that fit one batch together: [size] float32 each, length 1. Raises RuntimeError."""
        self._batch.clear()
        for slot, tokens in enumerate(inputs):
            self._batch.add(tokens, 0, slot, all_logits=True)
        memory = lib.llama_get_memory(self.handle)
        if memory:
            lib.llama_memory_clear(memory, False)
        code = (lib.llama_decode if memory else lib.llama_encode)(self.handle, self._batch.native)
        if code:
            raise RuntimeError(f"llama.cpp refused an embedding batch (code {code})")
        return [self._vector(slot) for slot in range(len(inputs))]

    def _vector(self, slot: int) -> npt.NDArray[np.float32]:
        pointer = lib.llama_get_embeddings_seq(self.handle, slot)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        if not address:
            raise RuntimeError("llama.cpp returned no embedding")
        array: Any = (ctypes.c_float * self._size).from_address(address)
        vector = np.frombuffer(array, np.float32).copy()
        vector /= max(np.float32(np.linalg.norm(vector)), np.float32(1e-12))
        return vector

    def close(self) -> None:
        """Free the context."""
        if self.handle:
            lib.llama_free(self.handle)
            self.handle = None
