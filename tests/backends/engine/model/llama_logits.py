"""Logits by llama.cpp, for a text whatever it says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from edge.llama.batch import Batch
from edge.llama.context import Context
from edge.llama.model import Model
from edge.llama.native import start


class LlamaLogits:
    """A llama.cpp context that is fed a text."""

    def __init__(self, context: Context, capacity: int) -> None:
        self._context, self._batch, self._done = context, Batch(capacity), 0

    def behind(self, tokens: list[int], wanted: list[int]) -> torch.Tensor:
        """Compute tokens up to the last wanted index of a text; return the logits behind those wanted, [n, vocab] float32."""
        self._batch.clear()
        end = wanted[-1] + 1
        self._batch.add(tokens[self._done : end], self._done, 0, last_logits=False)
        self._batch.wants_logits[[index - self._done for index in wanted]] = 1
        assert self._context.decode(self._batch) == 0
        self._done = end
        return torch.from_numpy(self._context.logits(len(wanted)).copy())


@contextmanager
def llama_logits(path: Path, cells: int) -> Iterator[LlamaLogits]:
    """Load a GGUF model in llama.cpp, with a float32 cache."""
    start()
    model = Model(str(path), gpu_layers=0, mmap=True)
    context = Context(
        model,
        cells=cells,
        batch=512,
        ubatch=512,
        sequences=1,
        threads=1,
        cache_types=("f32", "f32"),
        flash_attention="off",
        unified=True,
    )
    try:
        yield LlamaLogits(context, 512)
    finally:
        context.close()
        model.close()
