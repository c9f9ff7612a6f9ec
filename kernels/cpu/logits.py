"""Products with a vocabulary: float32 in and out. Few rows go to a kernel, many to float32 products of some words at a time."""

from collections.abc import Callable

import torch

from kernels.cpu.head import GROUP, head_bf16, head_int8
from kernels.cpu.launch import Launch

_ROWS_FOR_A_KERNEL = 32
_WORDS_AT_ONCE = 8192


class DenseLogits:
    """Words in bfloat16 or float32; see `kernels.ops.Device.dense_logits`."""

    def __init__(self, weight: torch.Tensor, threads: int) -> None:
        self._weight, self._threads, self.nbytes = weight, threads, weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        rows, (vocab, columns) = x.shape[0], self._weight.shape
        if self._weight.dtype == torch.float32:
            return x @ self._weight.t()
        if rows > _ROWS_FOR_A_KERNEL:
            return _in_slices(x, vocab, lambda first, end: self._weight[first:end].float())
        out = torch.empty(rows, vocab)
        Launch(head_bf16, x, self._weight, None, out, rows, vocab, columns, threads=self._threads)()
        return out


class Int8Logits:
    """Words in 8 bits with a scale for every 32 columns; see `kernels.ops.Device.int8_logits`."""

    def __init__(self, codes: torch.Tensor, scales: torch.Tensor, threads: int) -> None:
        self._codes, self._scales, self._threads = codes, scales, threads
        self.nbytes = codes.nbytes + scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        rows, (vocab, columns) = x.shape[0], self._codes.shape
        if rows > _ROWS_FOR_A_KERNEL:
            return _in_slices(x, vocab, self._widened)
        out = torch.empty(rows, vocab)
        Launch(head_int8, x, self._codes, self._scales, out, rows, vocab, columns, threads=self._threads)()
        return out

    def _widened(self, first: int, end: int) -> torch.Tensor:
        codes = self._codes[first:end].float().view(end - first, -1, GROUP)
        return (codes * self._scales[first:end, :, None]).flatten(1)


def _in_slices(x: torch.Tensor, vocab: int, widened: Callable[[int, int], torch.Tensor]) -> torch.Tensor:
    """Multiply many rows by some words after the other, so that only those are held in float32."""
    out = torch.empty(x.shape[0], vocab)
    for first in range(0, vocab, _WORDS_AT_ONCE):
        end = min(first + _WORDS_AT_ONCE, vocab)
        torch.mm(x, widened(first, end).t(), out=out[:, first:end])
    return out
