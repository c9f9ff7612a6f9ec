"""Weights out of a GGUF file: dequantised in chunks of rows, or handed on in the blocks that the file has."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch

from backends.engine.families import FAMILIES
from backends.engine.shape import ModelShape
from backends.engine.weights.files import OpenFiles
from backends.engine.weights.gguf_blocks import BLOCK_FORMATS, Blocks
from backends.engine.weights.gguf_inventory import gguf_inventory
from backends.engine.weights.inventory import TensorPlace
from backends.engine.weights.source import Int4Blocks, Int8Blocks
from backends.engine.weights.tensors import PLAIN, demand_finite, read_bytes
from backends.gguf.types import GGML_TYPES_BY_NAME

_CHUNK_ELEMENTS = 2**20
_GROUP = 32
_INT4, _INT8 = ("Q4_0", "Q4_1", "Q4_K"), "Q8_0"

Rows = slice | torch.Tensor


class GgufSource:
    """A `WeightSource` over a GGUF file, or over all parts when `path` is the first of several.

    Raises:
        ModelFileError: see `gguf_inventory`; or the files changed since.
    """

    def __init__(self, path: Path) -> None:
        self._inventory = gguf_inventory(path)
        self._files = OpenFiles(self._inventory.files)

    @property
    def shape(self) -> ModelShape:
        """The model's numbers."""
        return self._inventory.shape

    def dense(self, name: str) -> torch.Tensor:
        """See `WeightSource`."""
        place = self._place(name)
        result = torch.empty(place.shape, dtype=PLAIN.get(place.dtype, torch.float32))
        matrix = result.view(-1, place.shape[-1])
        for rows, raw in self._chunks(name, place):
            if place.dtype in PLAIN:
                matrix[rows] = demand_finite(raw.view(PLAIN[place.dtype]), place)
            else:
                matrix[rows] = self._blocks(raw, place).dense().view(len(raw), -1)
        return result

    def int4(self, name: str) -> Int4Blocks | None:
        """See `WeightSource`. Q4_K is held as groups of 32, which is what it is made of."""
        place = self._place(name)
        if place.dtype not in _INT4 or len(place.shape) != 2:
            return None
        outputs, inputs = place.shape
        codes = torch.empty(outputs, inputs, dtype=torch.uint8)
        scales, minima = torch.empty(2, outputs, inputs // _GROUP).unbind()
        for rows, raw in self._chunks(name, place):
            blocks = self._blocks(raw, place)
            shifted = blocks.codes if blocks.minima is not None else (blocks.codes + 8).to(torch.uint8)
            codes[rows] = shifted.view(len(raw), -1)
            scales[rows] = blocks.scales.view(len(raw), -1)
            minima[rows] = (blocks.scales * -8 if blocks.minima is None else blocks.minima).view(len(raw), -1)
        return Int4Blocks(codes, scales, minima, _GROUP)

    def int8(self, name: str) -> Int8Blocks | None:
        """See `WeightSource`."""
        place = self._place(name)
        if place.dtype != _INT8 or len(place.shape) != 2:
            return None
        outputs, inputs = place.shape
        codes = torch.empty(outputs, inputs, dtype=torch.int8)
        scales = torch.empty(outputs, inputs // _GROUP)
        for rows, raw in self._chunks(name, place):
            blocks = self._blocks(raw, place)
            codes[rows] = blocks.codes.view(len(raw), -1)
            scales[rows] = blocks.scales.view(len(raw), -1)
        return Int8Blocks(codes, scales)

    def kind(self, name: str) -> str:
        """See `WeightSource`."""
        return self._inventory.weights[name].kind

    def close(self) -> None:
        """See `WeightSource`."""
        self._files.close()

    def _place(self, name: str) -> TensorPlace:
        return self._inventory.weights[name].parts["weight"]

    def _chunks(self, name: str, place: TensorPlace) -> Iterator[tuple[Rows, torch.Tensor]]:
        """The bytes of some rows at a time, [rows, row bytes] uint8, each with the place of its rows in the result."""
        inputs = place.shape[-1]
        count = math.prod(place.shape) // inputs
        row_bytes = place.nbytes // count
        order = self._neox_order(name, count)
        step = max(_CHUNK_ELEMENTS // inputs, 1)
        for start in range(0, count, step):
            stop = min(start + step, count)
            raw = read_bytes(self._files, place, start * row_bytes, stop * row_bytes).view(-1, row_bytes)
            yield slice(start, stop) if order is None else order[start:stop], raw

    def _neox_order(self, name: str, count: int) -> torch.Tensor | None:
        """Where each row of an interleaved q or k belongs: row `2 * j + half` of a head is the `j`-th of that half."""
        if not FAMILIES[self.shape.architecture].interleaved or name.rpartition(".")[2] not in ("q", "k"):
            return None
        return torch.arange(count).view(-1, 2, self.shape.head_dim // 2).transpose(1, 2).flatten()

    @staticmethod
    def _blocks(raw: torch.Tensor, place: TensorPlace) -> Blocks:
        blocks = BLOCK_FORMATS[place.dtype](raw.view(-1, GGML_TYPES_BY_NAME[place.dtype].block_bytes))
        demand_finite(blocks.scales, place)
        if blocks.minima is not None:
            demand_finite(blocks.minima, place)
        return blocks
