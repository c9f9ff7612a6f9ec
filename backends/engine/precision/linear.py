"""A linear layer in some precision."""

from typing import Protocol

import torch

from kernels.ops import Product


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


class Layer:
    """A product with the name of its precision."""

    def __init__(self, product: Product, kind: str) -> None:
        self._product, self.kind, self.nbytes = product, kind, product.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return self._product(x)


class Side:
    """Several linear layers with one input, whose outputs stand side by side: projections whose precisions differ."""

    def __init__(self, parts: list[Linear]) -> None:
        self._parts = parts
        self.nbytes = sum(part.nbytes for part in parts)
        self.kind = "+".join(dict.fromkeys(part.kind for part in parts))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return torch.cat([part(x) for part in self._parts], -1)
