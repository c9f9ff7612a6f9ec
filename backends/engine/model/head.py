"""The embedding and the head. Where they are tied there is one matrix for both; logits are always float32."""

from typing import Protocol

import torch

from backends.engine.weights.source import WeightSource
from kernels.ops import Device

_WORDS_ROUNDED_AT_ONCE = 1024
_GROUP = 32


class Words(Protocol):
    """A matrix with a row per token of the vocabulary."""

    nbytes: int
    kind: str

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up rows: [n] int64, wherever they are, to [n, hidden] float32."""
        ...

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Dot products with every row: [n, hidden] float32 to [n, vocab] float32."""
        ...


class DenseWords:
    """Rows in bfloat16 or float32."""

    def __init__(self, weight: torch.Tensor, device: Device) -> None:
        self._weight = weight.to(device.place)
        self._product = device.dense_logits(self._weight)
        self.nbytes = self._product.nbytes
        self.kind = "bf16" if weight.dtype == torch.bfloat16 else "fp32"

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up; see `Words`."""
        return self._weight[ids.to(self._weight.device)].float()

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply; see `Words`."""
        return self._product(x)


class Int8Words:
    """Rows in 8 bits with a scale for every 32 columns: a GGUF file's Q8_0 as it is."""

    kind = "int8-g32"

    def __init__(self, codes: torch.Tensor, scales: torch.Tensor, device: Device) -> None:
        self._codes, self._scales = (part.contiguous().to(device.place) for part in (codes, scales))
        self._product = device.int8_logits(self._codes, self._scales)
        self.nbytes = self._product.nbytes

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up; see `Words`."""
        ids = ids.to(self._codes.device)
        codes = self._codes[ids].float().view(len(ids), -1, _GROUP)
        return (codes * self._scales[ids][..., None]).view(len(ids), -1)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply; see `Words`."""
        return self._product(x)


def read_words(source: WeightSource, name: str, precision: str, device: Device) -> Words:
    """Read the embedding or the head.

    Args:
        precision: `bf16`, `fp32`, `int8`, or `file`: 8 bits as they are in the file, else bfloat16.
    """
    blocks = source.int8(name) if precision in ("int8", "file") else None
    if blocks is not None:
        return Int8Words(blocks.codes, blocks.scales, device)
    weight = source.dense(name)
    if precision == "int8" and weight.shape[1] % _GROUP == 0:
        return Int8Words(*_rounded(weight), device)
    return DenseWords(weight.to(torch.float32 if precision == "fp32" else torch.bfloat16), device)


def _rounded(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round groups of columns to 8 bits, some words after the other: a vocabulary in float32 may be larger than the model."""
    codes = torch.empty(weight.shape, dtype=torch.int8)
    scales = torch.empty(len(weight), weight.shape[1] // _GROUP)
    for first in range(0, len(weight), _WORDS_ROUNDED_AT_ONCE):
        rows = slice(first, first + _WORDS_ROUNDED_AT_ONCE)
        grouped = weight[rows].float().view(-1, scales.shape[1], _GROUP)
        scales[rows] = grouped.abs().amax(-1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        codes[rows] = (grouped / scales[rows, :, None]).round_().flatten(-2)
    return codes, scales
