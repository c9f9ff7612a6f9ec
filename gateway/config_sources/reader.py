"""Turns a table of raw values into a frozen msgspec Struct, and collects every error instead of stopping at the first.

It knows nothing about any particular setting. An unknown key names its path and the nearest key that exists.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_MAX_SHOWN_CHARS = 60


class ConfigError(Exception):
    """The configuration cannot be used; `errors` has one line per mistake."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(self.errors))


def read_struct(cls: type[T], raw: object, path: str, errors: list[str], *, ignore: frozenset[str] = frozenset()) -> T | None:
    """Build `cls` from the table `raw`.

    Args:
        path: where the table stands, for messages (`models.tiny`).
        errors: each mistake is appended here; if there is any, the result is None.
        ignore: keys that the caller has read itself.
    """
    if not isinstance(raw, Mapping):
        errors.append(f"{path}: must be a table, not {shown(raw)}")
        return None
    before = len(errors)
    fields = {field.name: field for field in msgspec.structs.fields(cls)}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key in ignore:
            continue
        if key not in fields:
            errors.append(unknown_key(path, key, fields))
            continue
        try:
            values[key] = msgspec.convert(value, fields[key].type)
        except msgspec.ValidationError as error:
            errors.append(f"{path}.{key}: {_reason(error)} (it is {shown(value)})")
    errors += [f"{path}.{name}: is missing" for name, field in fields.items() if field.required and name not in raw]
    if len(errors) > before:
        return None
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        errors.append(f"{path}: {error}")
        return None


def unknown_key(path: str, key: str, known: Iterable[str]) -> str:
    """Say that a key does not exist, and which one may be meant."""
    known = sorted(known)
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}"
    return f"{path + '.' if path else ''}{key[:_MAX_SHOWN_CHARS]}: unknown key{hint}"


def shown(value: object) -> str:
    """Write a value into a message, cut short."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "..."


def _reason(error: msgspec.ValidationError) -> str:
    reason, _, where = str(error).partition(" - at ")
    return reason if where in ("", "`$`") else f"{reason} at {where}"
