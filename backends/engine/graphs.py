"""Decoding as recorded graphs: one replay launches what a step of hundreds of kernels would be.

A graph reads and writes the same tensors each time, so there is one for each number of rows out of a few, and rows that are not
needed fill it up: they have position -1, see nothing and write nothing. Graphs are recorded when they are first needed.
"""

from collections.abc import Callable

import torch

from backends.engine.model.transformer import Transformer
from kernels.batch import DecodeBatch
from kernels.ops import Device

_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)


class DecodeGraphs:
    """Replays decoding with the decode weights.

    Args:
        entries: of the longest block table.
        groups: how many tables a sequence has.
        longest: no position is as large.
    """

    def __init__(self, model: Transformer, device: Device, entries: int, groups: int, longest: int) -> None:
        self._model, self._device = model, device
        self._entries, self._groups, self._longest = entries, groups, longest
        self._graphs: dict[int, _Graph] = {}

    def logits(self, tokens: torch.Tensor, positions: torch.Tensor, tables: list[torch.Tensor]) -> torch.Tensor | None:
        """Compute tokens, each in a row of its own.

        Args:
            tokens, positions: [rows] int64, on the host.
            tables: for every group [rows, entries] int64, on the host; there may be fewer entries.

        Returns:
            [rows, vocab] float32, valid until the next call; None if there are too many rows for a graph.
        """
        rows = len(tokens)
        size = next((size for size in _ROWS if size >= rows), None)
        if size is None:
            return None
        graph = self._graphs.get(size)
        if graph is None:
            graph = self._graphs[size] = _Graph(self._record, self._device, size, self._entries, self._groups)
        return graph.replay(tokens, positions, tables)[:rows]

    def _record(self, tokens: torch.Tensor, positions: torch.Tensor, tables: list[torch.Tensor]) -> torch.Tensor:
        model = self._model
        attention = model.ops.decode(DecodeBatch(positions, tuple(tables), self._longest))
        return model.logits(model.run(model.weights.decode, tokens, attention, None))


class _Graph:
    """One graph with its inputs, on the host and on the device."""

    def __init__(
        self,
        record: Callable[[torch.Tensor, torch.Tensor, list[torch.Tensor]], torch.Tensor],
        device: Device,
        rows: int,
        entries: int,
        groups: int,
    ) -> None:
        pinned = device.place.type == "cuda"
        # One row for each token: its id, its position, then its tables.
        self._host = torch.zeros(rows, 2 + groups * entries, dtype=torch.int64, pin_memory=pinned)
        self._host[:, 1] = -1
        self._inputs = self._host.to(device.place)
        tables = [self._inputs[:, 2 + g * entries : 2 + (g + 1) * entries] for g in range(groups)]
        self._entries, tokens, positions = entries, self._inputs[:, 0], self._inputs[:, 1]
        self._replay = device.capture(lambda: record(tokens.contiguous(), positions.contiguous(), tables))

    def replay(self, tokens: torch.Tensor, positions: torch.Tensor, tables: list[torch.Tensor]) -> torch.Tensor:
        # What was copied before has arrived: its logits have been read.
        rows, host = len(tokens), self._host
        host[:rows, 0], host[:rows, 1], host[rows:, 1] = tokens, positions, -1
        for g, table in enumerate(tables):
            first = 2 + g * self._entries
            host[:rows, first : first + table.shape[1]] = table
        self._inputs.copy_(host, non_blocking=True)
        return self._replay()
