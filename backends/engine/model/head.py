"""The embedding and the head. Where they are tied there is one matrix for both; logits are always float32."""

from collections.abc import Callable
from typing import Protocol

import torch

from backends.engine.weights.source import WeightSource
from kernels.cpu.head import head_bf16, head_int8
from kernels.cpu.launch import Launch

_ROWS_FOR_A_KERNEL = 32
_WORDS_AT_ONCE = 8192
_WORDS_ROUNDED_AT_ONCE = 1024
_GROUP = 32


class Words(Protocol):
    """A matrix with a row per token of the vocabulary."""

    nbytes: int
    kind: str

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up rows: [n] int64 to [n, hidden] float32."""
        ...

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Dot products with every row: [n, hidden] float32 to [n, vocab] float32."""
        ...


class DenseWords:
    """Rows in bfloat16 or float32."""

    def __init__(self, weight: torch.Tensor, threads: int) -> None:
        self._weight, self._threads = weight, threads
        self.nbytes = weight.nbytes
        self.kind = "bf16" if weight.dtype == torch.bfloat16 else "fp32"

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up; see `Words`."""
        return self._weight[ids].float()

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply; see `Words`."""
        rows, (vocab, columns) = x.shape[0], self._weight.shape
        if self._weight.dtype == torch.float32:
            return x @ self._weight.t()
        if rows > _ROWS_FOR_A_KERNEL:
            return _in_slices(x, vocab, lambda first, end: self._weight[first:end].float())
        out = torch.empty(rows, vocab)
        Launch(head_bf16, x, self._weight, None, out, rows, vocab, columns, threads=self._threads)()
        return out


class Int8Words:
    """Rows in 8 bits with a scale for every 32 columns: a GGUF file's Q8_0 as it is."""

    kind = "int8-g32"

    def __init__(self, codes: torch.Tensor, scales: torch.Tensor, threads: int) -> None:
        self._codes, self._scales, self._threads = codes.contiguous(), scales.contiguous(), threads
        self.nbytes = codes.nbytes + scales.nbytes

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up; see `Words`."""
        codes = self._codes[ids].float().view(len(ids), -1, _GROUP)
        return (codes * self._scales[ids][..., None]).view(len(ids), -1)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply; see `Words`."""
        rows, (vocab, columns) = x.shape[0], self._codes.shape
        if rows > _ROWS_FOR_A_KERNEL:
            return _in_slices(x, vocab, lambda first, end: self.rows(torch.arange(first, end)))
        out = torch.empty(rows, vocab)
        Launch(head_int8, x, self._codes, self._scales, out, rows, vocab, columns, threads=self._threads)()
        return out


def read_words(source: WeightSource, name: str, precision: str, threads: int) -> Words:
    """Read the embedding or the head.

    Args:
        precision: `bf16`, `fp32`, `int8`, or `file`: 8 bits as they are in the file, else bfloat16.
    """
    blocks = source.int8(name) if precision in ("int8", "file") else None
    if blocks is not None:
        return Int8Words(blocks.codes, blocks.scales, threads)
    weight = source.dense(name)
    if precision == "int8" and weight.shape[1] % _GROUP == 0:
        return Int8Words(*_rounded(weight), threads)
    return DenseWords(weight.to(torch.float32 if precision == "fp32" else torch.bfloat16), threads)


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


def _in_slices(x: torch.Tensor, vocab: int, widened: Callable[[int, int], torch.Tensor]) -> torch.Tensor:
    """Multiply many rows by some words after the other, so that only those are held in float32."""
    out = torch.empty(x.shape[0], vocab)
    for first in range(0, vocab, _WORDS_AT_ONCE):
        end = min(first + _WORDS_AT_ONCE, vocab)
        torch.mm(x, widened(first, end).t(), out=out[:, first:end])
    return out
