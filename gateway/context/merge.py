"""How the pieces of a streamed object add up: texts and lists grow, lists of numbered entries grow entry by entry.

The same rules as in the accumulating helpers of the official clients, so that what is kept is what a client has seen. Texts are
kept as pieces until the end: joining them one by one would take time that grows with the square of their length.
"""

from typing import Any

import msgspec

MAX_ENTRIES = 1024
"""Numbered entries in one list, such as the tool calls of one message."""

PIECE_COST = 16
"""What a piece counts beside its characters: roughly what keeping it apart takes."""

_encode = msgspec.json.Encoder().encode
_SET_ONCE = frozenset({"id", "type", "role", "index"})


class Text(list[str]):
    """A text that grows."""


def merge(into: dict[str, Any], piece: dict[str, Any]) -> int:
    """Add a piece to an object; `settled` makes it a plain one again. Later nulls change nothing.

    Returns what the piece costs: its characters, and 16 for each value in it.

    Raises:
        ValueError: a list has an entry numbered beyond 1,024.
    """
    cost = 0
    for name, value in piece.items():
        cost += PIECE_COST
        old = into.get(name)
        if isinstance(value, str) and name not in _SET_ONCE:
            cost += len(value)
            if isinstance(old, Text):
                old.append(value)
            else:
                into[name] = Text((value,))
        elif isinstance(value, list):
            into[name] = old if isinstance(old, list) else []
            cost += _extend(into[name], value)
        elif isinstance(value, dict):
            into[name] = old if isinstance(old, dict) else {}
            cost += merge(into[name], value)
        elif old is None or (value is not None and name not in _SET_ONCE):
            into[name] = value
            cost += len(value) if isinstance(value, str) else 0
    return cost


def overwrite(into: dict[str, Any], fields: dict[str, Any]) -> int:
    """Set the fields of an object that do not grow, apart from nulls. Returns the cost of those that changed."""
    cost = 0
    for name, value in fields.items():
        if value is not None and into.get(name) != value:
            into[name] = value
            cost += PIECE_COST + len(_encode(value))
    return cost


def settled(value: Any) -> Any:
    """Join all texts inside a merged value."""
    if isinstance(value, Text):
        return "".join(value)
    if isinstance(value, dict):
        return {name: settled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [settled(inner) for inner in value]
    return value


def _extend(entries: list[Any], pieces: list[Any]) -> int:
    cost = 0
    for piece in pieces:
        index = piece.get("index") if isinstance(piece, dict) else None
        if not isinstance(index, int):
            entries.append(piece)
            cost += PIECE_COST + len(_encode(piece))
            continue
        if not 0 <= index < MAX_ENTRIES:
            raise ValueError(f"entry {index} in a list of at most {MAX_ENTRIES}")
        while len(entries) <= index:
            entries.append({})
        cost += merge(entries[index], piece)
    return cost
