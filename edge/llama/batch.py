"""A `llama_batch` over numpy arrays: a step is filled by a few slice assignments instead of ctypes calls per token."""

import ctypes
from typing import Any

import numpy as np

from edge.llama.native import lib


class Batch:
    """Room for `capacity` tokens with one sequence id each."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.token = np.zeros(capacity, np.int32)
        self.position = np.zeros(capacity, np.int32)
        self.sequence = np.zeros(capacity, np.int32)
        self.wants_logits = np.zeros(capacity, np.int8)
        self._one = np.ones(capacity, np.int32)
        # llama.cpp wants a pointer per token to its list of sequence ids: each list is one element of `sequence`.
        self._lists = (self.sequence.ctypes.data + 4 * np.arange(capacity + 1)).astype(np.uint64)
        self._lists[capacity] = 0
        self.native: Any = lib.llama_batch()
        self.native.token = _pointer(self.token, ctypes.c_int32)
        self.native.pos = _pointer(self.position, ctypes.c_int32)
        self.native.n_seq_id = _pointer(self._one, ctypes.c_int32)
        self.native.seq_id = ctypes.cast(self._lists.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))
        self.native.logits = _pointer(self.wants_logits, ctypes.c_int8)
        self.native.embd = None
        self.native.n_tokens = 0

    def clear(self) -> None:
        """Start a new step."""
        self.native.n_tokens = 0

    def add(self, tokens: list[int], start: int, slot: int, *, all_logits: bool = False, last_logits: bool = True) -> None:
        """Append a run of tokens of one sequence, from position `start` on."""
        begin, count = self.native.n_tokens, len(tokens)
        end = begin + count
        assert end <= self.capacity, f"batch of {end} tokens, room for {self.capacity}"  # the C side would not check
        self.token[begin:end] = tokens
        self.position[begin:end] = np.arange(start, start + count, dtype=np.int32)
        self.sequence[begin:end] = slot
        self.wants_logits[begin:end] = all_logits
        if last_logits:
            self.wants_logits[end - 1] = 1
        self.native.n_tokens = end

    def add_one(self, token: int, position: int, slot: int) -> None:
        """Append the next token of a decoding sequence."""
        i = self.native.n_tokens
        self.token[i] = token
        self.position[i] = position
        self.sequence[i] = slot
        self.wants_logits[i] = 1
        self.native.n_tokens = i + 1


def _pointer(array: Any, kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
