"""What is compiled to prove that an operator compiles. The cases are in `kernels.gpu.cases`, one module per operator."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """A call of a public entry, with tensors of the device `meta`.

    Args:
        name: what is special about it: types, sizes.
        run: makes the call.
        products: names of the kernels that must use tensor cores.
        least: the lowest capability that it is meant for.
    """

    name: str
    run: Callable[[], object]
    products: tuple[str, ...] = ()
    least: int = 80
