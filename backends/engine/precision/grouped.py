"""Weights of 4 or 8 bits with a scale for each group of columns, multiplied as they are: for CPUs that multiply bfloat16."""

import torch
from torch.nn import functional as F

from backends.engine.weights.source import Int4Blocks, Int8Blocks
from kernels.cpu.buffers import Buffers
from kernels.cpu.grouped import GroupedProduct, pack

_INT8_GROUP = 32


class Grouped:
    """A row of the product has the same bits however many rows there are.

    Args:
        blocks: the rows of several matrices may have been joined.
        bias: [out] float32, or None.

    Raises:
        ValueError: a scale is too large for float16.
    """

    def __init__(self, blocks: Int4Blocks | Int8Blocks, bias: torch.Tensor | None, buffers: Buffers, threads: int) -> None:
        outputs, self._columns = blocks.codes.shape
        if isinstance(blocks, Int4Blocks):
            bits, group, minima = 4, blocks.group, blocks.minima
        else:
            bits, group, minima = 8, _INT8_GROUP, None
        packed = pack(blocks.codes, blocks.scales, minima, group)
        self._product = GroupedProduct(packed, bits, outputs, self._columns, group, bias, buffers, threads)
        self.nbytes = packed.nbytes
        self.kind = f"int{bits}-g{group}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        if x.shape[1] < self._columns:
            x = F.pad(x, (0, self._columns - x.shape[1]))
        return self._product(x)
