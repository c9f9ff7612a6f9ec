"""What is measured: two computations of the same thing, and what they must move and multiply."""

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One computation on given inputs.

    Args:
        ours: launches the operator; returns its result.
        peer: does the same with torch's own kernels, or None where it has nothing like it.
        exact: computes it by its definition, for the check.
        last: `exact` computes only so many rows, the last ones; 0 is all.
        limit: how far the result may be off, as a relative Frobenius norm.
        moved: bytes that must be read and written once.
        products: floating-point operations of the matrix products, two for each term.
    """

    ours: Callable[[], torch.Tensor]
    peer: Callable[[], torch.Tensor] | None
    exact: Callable[[], torch.Tensor]
    last: int = 0
    limit: float
    moved: int
    products: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A size at which an operator is measured.

    Args:
        make: prepares the work on a device, with activations of a type. `small` asks for the same thing in a size that the
            interpreter can check.
    """

    operator: str
    name: str
    make: Callable[[torch.device, torch.dtype, bool], Work]


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The relative Frobenius norm of the difference."""
    return float((found.double() - exact.double()).norm() / exact.double().norm())
