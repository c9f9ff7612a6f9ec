"""A linear layer in some precision."""

from typing import Protocol

import torch
from torch.nn import functional as F


class Linear(Protocol):
    """x [rows, in] to [rows, out], both of the activations' type and contiguous."""

    @property
    def nbytes(self) -> int:
        """What the weights take."""
        ...

    @property
    def kind(self) -> str:
        """The precision, for people: `bf16`, `int8`, `int4-g32`."""
        ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        ...


class Dense:
    """Weights in bfloat16 or float32.

    Args:
        weight: [out, in].
        bias: [out] float32, or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = None if bias is None else bias.to(weight.dtype)
        self.nbytes = weight.nbytes
        self.kind = "bf16" if weight.dtype == torch.bfloat16 else "fp32"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply; activations of another type are converted and the result is converted back."""
        if x.dtype == self._weight.dtype:
            return F.linear(x, self._weight, self._bias)
        return F.linear(x.to(self._weight.dtype), self._weight, self._bias).to(x.dtype)


class Side:
    """Several linear layers with one input, whose outputs stand side by side: projections whose precisions differ."""

    def __init__(self, parts: list[Linear]) -> None:
        self._parts = parts
        self.nbytes = sum(part.nbytes for part in parts)
        self.kind = "+".join(dict.fromkeys(part.kind for part in parts))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return torch.cat([part(x) for part in self._parts], -1)
