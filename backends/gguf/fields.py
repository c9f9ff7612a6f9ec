"""Typed access to the metadata of a header: each function returns a value of the asked kind, None where the key is absent, or
raises. It knows types and ranges, not what the keys mean.
"""

from array import array
from collections.abc import Iterable

from backends.gguf.errors import GgufError, shown
from backends.gguf.header import Header
from backends.gguf.types import INTEGERS


def text(header: Header, key: str) -> str | None:
    """A string. Raises `GgufError` when the value is something else."""
    value = header.metadata.get(key)
    if value is None or isinstance(value, str):
        return value
    raise _wrong_type(header, key, "str")


def choice(header: Header, key: str, allowed: Iterable[str], what: str) -> str | None:
    """A string out of a set. Raises `GgufError` that calls the set `what`."""
    value = text(header, key)
    if value is not None and value not in allowed:
        raise GgufError(f"{key} is {shown(value)}, which is no {what}")
    return value


def integer(header: Header, key: str, low: int, high: int) -> int | None:
    """An integer of any width from `low` to `high`. Raises `GgufError` otherwise."""
    value = header.metadata.get(key)
    if value is None:
        return None
    if header.value_types[key] not in INTEGERS or not isinstance(value, int):
        raise _wrong_type(header, key, "an integer")
    return _within(shown_key(key), value, low, high)


def per_layer(header: Header, key: str, low: int, high: int, layers: int | None) -> tuple[int, ...] | None:
    """One integer for each of `layers` layers, given as an array or once for all.

    Raises:
        GgufError: it is something else, or an array although the number of layers is not known.
    """
    value = header.metadata.get(key)
    if not isinstance(value, array):
        single = integer(header, key, low, high)
        return None if single is None else (single,) * (layers or 1)
    demand_type(header, key, "[u32]", "[i32]")
    if len(value) != layers:
        known = "the number of layers is missing" if layers is None else f"the model has {layers} layers"
        raise GgufError(f"{shown_key(key)} has {len(value):,} entries, but {known}")
    return tuple(_within(f"{shown_key(key)}[{layer}]", int(entry), low, high) for layer, entry in enumerate(value))


def demand_type(header: Header, key: str, *allowed: str) -> None:
    """Raise `GgufError` when the value is there but of none of the `allowed` types (`u16`, `[f32]`)."""
    if key in header.metadata and header.value_types[key] not in allowed:
        raise _wrong_type(header, key, " or ".join(allowed))


def length(header: Header, key: str) -> int | None:
    """The number of elements of an array whose type has been checked."""
    value = header.metadata.get(key)
    if value is None:
        return None
    assert not isinstance(value, int | float)
    return len(value)


def shown_key(key: str) -> str:
    """A key for a message; it contains the name of the architecture, which the file chose."""
    return key if key.isascii() and key.isprintable() and len(key) <= 96 else shown(key)


def _within(field: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise GgufError(f"{field} is {value:,}, expected {low:,} to {high:,}")
    return value


def _wrong_type(header: Header, key: str, expected: str) -> GgufError:
    return GgufError(f"{shown_key(key)} is of type {header.value_types[key]}, expected {expected}")
