"""Reads JSON objects whose values may be anything: an upstream's word is never trusted to have the right type."""

from typing import Any

import msgspec

from backends.remote.errors import protocol_error

_decoder = msgspec.json.Decoder()
encode = msgspec.json.Encoder().encode


def read_object(data: bytes, what: str) -> dict[str, Any]:
    """Decode an object.

    Args:
        what: what it is, for the message (`event`, `answer`).

    Raises:
        Failed: it is not a JSON object.
    """
    try:
        value = _decoder.decode(data)
    except (ValueError, RecursionError):
        raise protocol_error(f"The upstream server sent an {what} that is not JSON.") from None
    if not isinstance(value, dict):
        raise protocol_error(f"The upstream server sent an {what} that is not a JSON object.")
    return value


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; nothing when it is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count(value: Any) -> int:
    """A number of tokens; 0 when it is none."""
    return value if isinstance(value, int) and value >= 0 else 0


def text(value: Any) -> str:
    """A string; empty when it is none."""
    return value if isinstance(value, str) else ""
