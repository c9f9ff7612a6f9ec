"""Where weights come from: one interface over GGUF files and safetensors folders of every supported format."""

from dataclasses import dataclass
from typing import Protocol

import torch

from backends.engine.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Int4Blocks:
    """A matrix in 4 bits as its file holds it: `w[n, k] = codes[n, k] * scales[n, k // group] + minima[n, k // group]`.

    Args:
        codes: [out, in] uint8, 0 to 15.
        scales, minima: [out, in / group] float32, finite.
        group: columns that share a scale: 32, 64 or 128, and a divisor of `in`.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor
    group: int


@dataclass(frozen=True, slots=True)
class Int8Blocks:
    """A matrix in 8 bits as its file holds it: `w[n, k] = codes[n, k] * scales[n, k // 32]`.

    Args:
        codes: [out, in] int8.
        scales: [out, in / 32] float32, finite.
    """

    codes: torch.Tensor
    scales: torch.Tensor


class WeightSource(Protocol):
    """Weights by the names of `backends.engine.names`. Nothing is read before it is asked for, and nothing is kept.

    Every tensor that is handed out is new and belongs to the caller. Each method raises `KeyError` for a name that
    `backends.engine.names.expected(shape)` does not have, and `ModelFileError` when the data are damaged: not finite, or
    shorter than the header said.
    """

    @property
    def shape(self) -> ModelShape:
        """The model's numbers."""
        ...

    def dense(self, name: str) -> torch.Tensor:
        """Read one weight and dequantise it. Returns float32, or bfloat16/float16 where the file holds exactly that.

        Beside the result it holds the bytes that the file has for this weight, and a few megabytes.
        """
        ...

    def int4(self, name: str) -> Int4Blocks | None:
        """Read a matrix in the 4-bit blocks of its file, without rounding anything anew; None where it has no such form."""
        ...

    def int8(self, name: str) -> Int8Blocks | None:
        """Read a matrix in the 8-bit blocks of its file, without rounding anything anew; None where it has no such form."""
        ...

    def kind(self, name: str) -> str:
        """The storage format of a weight, for people: `Q4_1`, `BF16`, `GPTQ-4 g128`."""
        ...

    def close(self) -> None:
        """Close the files; a second time does nothing."""
        ...
