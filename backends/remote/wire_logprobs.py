"""Log probabilities of both APIs in our vocabulary. The wire carries texts and sometimes bytes, but no token ids."""

import re
from typing import Any

from backends.remote.json_fields import dicts, text
from backends.types import Alternative, TokenLogprob

UNKNOWN_ID = -1
LOWEST = -9999.0

_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")


def read_chat_logprobs(value: Any) -> tuple[TokenLogprob, ...]:
    """The `logprobs` object of a chat choice."""
    if not isinstance(value, dict):
        return ()
    return tuple(
        TokenLogprob(UNKNOWN_ID, _piece(token), _number(token.get("logprob")) or 0.0, _alternatives(token.get("top_logprobs")))
        for token in dicts(value.get("content"))
    )


def read_legacy_logprobs(value: Any, alternatives: int) -> tuple[TokenLogprob, ...]:
    """The `logprobs` object of a legacy completion choice, whose alternatives are unordered and may be one too many."""
    if not isinstance(value, dict) or not isinstance(value.get("tokens"), list):
        return ()
    tokens = value["tokens"]
    logprobs = _padded(value.get("token_logprobs"), len(tokens))
    tops = _padded(value.get("top_logprobs"), len(tokens))
    return tuple(
        TokenLogprob(UNKNOWN_ID, _legacy_piece(text(token)), _number(logprob), _legacy_alternatives(top, alternatives))
        for token, logprob, top in zip(tokens, logprobs, tops, strict=True)
    )


def _piece(token: dict[str, Any]) -> bytes:
    exact = token.get("bytes")
    if isinstance(exact, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in exact):
        return bytes(exact)
    return text(token.get("token")).encode()


def _legacy_piece(token: str) -> bytes:
    if token.startswith("bytes:\\x"):
        return bytes(int(pair, 16) for pair in _ESCAPED.findall(token))
    return token.encode()


def _alternatives(value: Any) -> tuple[Alternative, ...]:
    return tuple(Alternative(UNKNOWN_ID, _piece(token), _number(token.get("logprob")) or 0.0) for token in dicts(value))


def _legacy_alternatives(value: Any, limit: int) -> tuple[Alternative, ...]:
    if not isinstance(value, dict):
        return ()
    found = [Alternative(UNKNOWN_ID, _legacy_piece(token), _number(logprob) or 0.0) for token, logprob in value.items()]
    found.sort(key=lambda other: other.logprob, reverse=True)
    return tuple(found[:limit])


def _number(value: Any) -> float | None:
    return max(float(value), LOWEST) if isinstance(value, int | float) else None


def _padded(value: Any, size: int) -> list[Any]:
    found = value[:size] if isinstance(value, list) else []
    return found + [None] * (size - len(found))
