"""Computes the steps that the scheduler plans: decoding sequences with one set of weights, parts of prompts with the other."""

from collections.abc import Iterable
from itertools import accumulate

import torch

from backends.engine.graphs import DecodeGraphs
from backends.engine.model.transformer import Transformer
from backends.engine.scheduling.sequence import Sequence
from backends.engine.scheduling.step import Chunk, Step
from backends.engine.tables import Tables
from kernels.batch import DecodeBatch, KvPool, PrefillChunk
from kernels.ops import Device

Rows = tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]
"""Tokens and positions, [rows] int64, and for each group of layers their block tables, [rows, entries] int64."""


class Runner:
    """Owns the cache's memory. Used by one thread.

    Args:
        pools: one for each group of layers.
        slots: sequences that run at once.
        context: tokens of the longest.
        device: the one that the model is on.
    """

    def __init__(self, model: Transformer, pools: list[KvPool], slots: int, context: int, device: Device) -> None:
        self._model, self._pools = model, pools
        self._block = pools[0].block
        entries = -(-context // self._block) + 1
        self._tables = Tables(slots, entries, len(pools))
        self._graphs = DecodeGraphs(model, device, entries, len(pools), context) if device.captures else None

    def prepare(self, step: Step, running: Iterable[Sequence]) -> None:
        """Make the copies of a step, before anything of it is computed."""
        self._tables.forget_all_but(set(running))
        for copy in step.copies:
            pool = self._pools[copy.group]
            pool.cache[copy.target] = pool.cache[copy.source]
            if pool.scales is not None:
                pool.scales[copy.target] = pool.scales[copy.source]

    def decode(self, sequences: list[Sequence]) -> torch.Tensor:
        """Compute the newest token of each sequence and those of its draft.

        Returns:
            [sum of `1 + len(draft)`, vocab] float32 logits, sequence after sequence.
        """
        rows = self._rows((s, s.num_computed, [s.tokens[-1], *s.draft]) for s in sequences)
        logits = self._graphs.logits(*rows) if self._graphs else None
        return self._model.logits(self._hidden(*rows, None)) if logits is None else logits

    def replay(self, chunks: list[Chunk]) -> list[torch.Tensor]:
        """Compute parts of answers again, with the same bits as when they were generated.

        Returns:
            For each chunk the final hidden state of its last token, [1, hidden] float32, if that is the sequence's newest one,
            else [0, hidden]. Valid until the next computation.
        """
        rows = self._rows((chunk.sequence, chunk.start, chunk.sequence.tokens[chunk.start : chunk.end]) for chunk in chunks)
        lasts = accumulate(chunk.end - chunk.start for chunk in chunks)
        counts = [int(chunk.end == len(chunk.sequence.tokens)) for chunk in chunks]
        wanted = [last - 1 for last, count in zip(lasts, counts, strict=True) if count]
        return list(torch.split(self._hidden(*rows, torch.tensor(wanted, dtype=torch.int64)), counts))

    def prefill(self, chunks: list[Chunk]) -> list[torch.Tensor]:
        """Compute parts of prompts.

        Returns:
            For each chunk the final hidden states, [n, hidden] float32, of the tokens whose logits are wanted: all of them, the
            last, or none. Valid until the next computation.
        """
        parts: list[PrefillChunk] = []
        tokens: list[int] = []
        wanted: list[int] = []
        counts: list[int] = []
        for chunk in chunks:
            sequence, row = chunk.sequence, self._tables.row(chunk.sequence, self._block)
            first, count = len(tokens), chunk.end - chunk.start
            parts.append(PrefillChunk(first, count, chunk.start, tuple(tensor[row] for tensor in self._tables.tensors)))
            tokens += sequence.tokens[chunk.start : chunk.end]
            if sequence.all_logits:
                wanted += range(first, first + count)
                counts.append(count)
            elif chunk.end == len(sequence.tokens):
                wanted.append(first + count - 1)
                counts.append(1)
            else:
                counts.append(0)
        attention = self._model.ops.prefill(parts)
        hidden = self._model.run(
            self._model.weights.prefill, torch.tensor(tokens), attention, torch.tensor(wanted, dtype=torch.int64)
        )
        return list(torch.split(hidden, counts))

    def _rows(self, parts: Iterable[tuple[Sequence, int, list[int]]]) -> Rows:
        """Put tokens from a position on, of each sequence, into rows of their own."""
        tokens: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        for sequence, start, some in parts:
            tokens += some
            positions += range(start, start + len(some))
            rows += [self._tables.row(sequence, self._block)] * len(some)
        entries = max(positions) // self._block + 1
        tables = [tensor[rows, :entries] for tensor in self._tables.tensors]
        return torch.tensor(tokens), torch.tensor(positions), tables

    def _hidden(
        self, tokens: torch.Tensor, positions: torch.Tensor, tables: list[torch.Tensor], wanted: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute rows with the decode weights; see `Transformer.run`."""
        attention = self._model.ops.decode(DecodeBatch(positions, tuple(tables), int(positions.max()) + 1))
        return self._model.run(self._model.weights.decode, tokens, attention, wanted)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Turn final hidden states into logits."""
        return self._model.logits(hidden)
