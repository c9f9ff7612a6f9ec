"""How the pieces of a streamed object add up: texts and lists grow, lists of numbered entries grow entry by entry.

The same rules as in the accumulating helpers of the official clients, so that what is kept is what a client has seen. Texts are
kept as pieces until the end: joining them one by one would take time that grows with the square of their length.
"""

from typing import Any

MAX_ENTRIES = 1024
"""Numbered entries in one list, such as the tool calls of one message."""

_SET_ONCE = frozenset({"id", "type", "role", "index"})


class Text(list[str]):
    """A text that grows."""


def merge(into: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece to an object; `settled` makes it a plain one again. Later nulls change nothing.

    Raises:
        ValueError: a list has an entry numbered beyond 1,024.
    """
    for name, value in piece.items():
        old = into.get(name)
        if isinstance(value, str) and name not in _SET_ONCE:
            if isinstance(old, Text):
                old.append(value)
            else:
                into[name] = Text((value,))
        elif isinstance(value, list):
            into[name] = _extended(old if isinstance(old, list) else [], value)
        elif isinstance(value, dict):
            into[name] = old if isinstance(old, dict) else {}
            merge(into[name], value)
        elif old is None or (value is not None and name not in _SET_ONCE):
            into[name] = value


def settled(value: Any) -> Any:
    """Join all texts inside a merged value."""
    if isinstance(value, Text):
        return "".join(value)
    if isinstance(value, dict):
        return {name: settled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [settled(inner) for inner in value]
    return value


def _extended(entries: list[Any], pieces: list[Any]) -> list[Any]:
    for piece in pieces:
        index = piece.get("index") if isinstance(piece, dict) else None
        if not isinstance(index, int):
            entries.append(piece)
            continue
        if not 0 <= index < MAX_ENTRIES:
            raise ValueError(f"entry {index} in a list of at most {MAX_ENTRIES}")
        while len(entries) <= index:
            entries.append({})
        merge(entries[index], piece)
    return entries
