"""One head of one token in the paged cache: in the activations' own type, or in int8 with a scale of its own."""

from typing import Any

from numba import types
from numba.extending import overload

from kernels.cpu.codes import to_codes


def has_scales(cache: Any) -> bool:
    """Whether it is int8."""
    raise NotImplementedError("only inside kernels")


@overload(has_scales, strict=False)
def _has_scales(cache: Any) -> Any:
    if cache.dtype == types.int8:
        return lambda cache: True
    return lambda cache: False


def write_head(source: Any, first: Any, cache: Any, scales: Any, place: Any, size: Any) -> None:
    """Store the `size` numbers from `first` on at `place`; into int8 symmetrically, the largest becoming 127."""
    raise NotImplementedError("only inside kernels")


@overload(write_head, strict=False)
def _write_head(source: Any, first: Any, cache: Any, scales: Any, place: Any, size: Any) -> Any:
    if cache.dtype != types.int8:

        def copied(source: Any, first: Any, cache: Any, scales: Any, place: Any, size: Any) -> None:
            for i in range(size):
                cache[place + i] = source[first + i]

        return copied

    def quantised(source: Any, first: Any, cache: Any, scales: Any, place: Any, size: Any) -> None:
        scales[place // size] = to_codes(source, first, cache, place, size)

    return quantised
