"""One llama.cpp context: the KV cache of all sequences and the computation over it. Used by exactly one thread.

Each slot has a stream of cells of its own, or all draw from one pool (`unified`): attention then walks over all cells, but
a prefix is shared without copying and one request may use the whole context. It knows no scheduling. See NOTES.md for both.
"""

import ctypes
from time import thread_time
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.child.errors import LoadError
from edge.llama.batch import Batch
from edge.llama.model import Model
from edge.llama.native import FLASH_ATTENTION, KV_TYPES, complaints, lib


class Context:
    """A generating context; implements `edge.scheduler.KvMemory`."""

    def __init__(
        self,
        model: Model,
        *,
        cells: int,
        batch: int,
        ubatch: int,
        sequences: int,
        threads: int,
        cache_types: tuple[str, str],
        flash_attention: str,
        unified: bool,
    ) -> None:
        """Raises LoadError when the memory does not suffice. `cells` may be rounded up by llama.cpp."""
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = cells, batch, min(ubatch, batch)
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.type_k, params.type_v = (KV_TYPES[name] for name in cache_types)
        params.flash_attn_type = FLASH_ATTENTION[flash_attention]
        params.kv_unified = unified
        params.swa_full = True  # a sliding-window cache of window size could not give back an older prefix
        params.no_perf = True
        self.handle: Any = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise LoadError(f"llama.cpp could not create a context of {cells} tokens (too little memory?): {complaints()}")
        self.cells = int(lib.llama_n_ctx(self.handle))
        self.cells_per_sequence = int(lib.llama_n_ctx_seq(self.handle))
        self.unified = unified
        self.partial = not model.is_recurrent
        self._window = model.window
        self._vocab = model.vocabulary.size
        self._memory = lib.llama_get_memory(self.handle)
        self.snapshot_seconds = 0.0  # CPU time of copies to and from host memory
        self._rows: tuple[int, int, npt.NDArray[np.float32]] | None = None

    def decode(self, batch: Batch) -> int:
        """Compute a batch; returns llama.cpp's code (0 done, 1 no cells, 2 aborted, -1 refused, below fatal)."""
        return int(lib.llama_decode(self.handle, batch.native))

    def logits(self, count: int) -> npt.NDArray[np.float32]:
        """View the logits of the last decode: [count, vocab] float32, rows in batch order. Valid until the next decode."""
        pointer = lib.llama_get_logits(self.handle)
        if not pointer:
            raise RuntimeError("llama.cpp returned no logits")
        address = ctypes.addressof(pointer.contents)
        if self._rows is None or self._rows[:2] != (address, count):
            array: Any = (ctypes.c_float * (count * self._vocab)).from_address(address)
            self._rows = address, count, np.frombuffer(array, np.float32).reshape(count, self._vocab)
        return self._rows[2]

    def reusable(self, slot: int, end: int) -> bool:
        """See `KvMemory`: the window before `end` must still be there."""
        if not self._window:
            return True
        return 0 <= int(lib.llama_memory_seq_pos_min(self._memory, slot)) <= max(0, end - self._window)

    def copy(self, source: int, target: int, end: int) -> bool:
        """See `KvMemory`."""
        if self.unified:
            lib.llama_memory_seq_cp(self._memory, source, target, 0, end)
            return True
        # Between streams llama.cpp copies whole streams, used or not: a snapshot holds only what is there.
        return self.restore(target, self.save(source)[0]) and self.truncate(target, end)

    def truncate(self, slot: int, end: int) -> bool:
        """See `KvMemory`."""
        return bool(lib.llama_memory_seq_rm(self._memory, slot, end, -1))

    def clear(self, slot: int) -> None:
        """See `KvMemory`."""
        lib.llama_memory_seq_rm(self._memory, slot, -1, -1)

    def save(self, slot: int) -> tuple[npt.NDArray[np.uint8], int]:
        """See `KvMemory`. An empty array when llama.cpp cannot save the sequence."""
        began = thread_time()
        data = np.empty(lib.llama_state_seq_get_size(self.handle, slot), np.uint8)
        written = int(lib.llama_state_seq_get_data(self.handle, _bytes(data), data.nbytes, slot))
        self.snapshot_seconds += thread_time() - began
        return data, written if written == data.nbytes else 0

    def restore(self, slot: int, data: npt.NDArray[np.uint8]) -> bool:
        """See `KvMemory`."""
        began = thread_time()
        read = lib.llama_state_seq_set_data(self.handle, _bytes(data), data.nbytes, slot)
        self.snapshot_seconds += thread_time() - began
        if read:
            return True
        self.clear(slot)  # a failed restore may leave part of the sequence behind
        return False

    def length(self, slot: int) -> int:
        """How many positions llama.cpp holds for a sequence."""
        return int(lib.llama_memory_seq_pos_max(self._memory, slot)) + 1

    def close(self) -> None:
        """Free the KV cache."""
        if self.handle:
            lib.llama_free(self.handle)
            self.handle = None


def _bytes(array: npt.NDArray[np.uint8]) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
