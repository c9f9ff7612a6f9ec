"""Which requests have the same answer, and which of them the cache may answer at all."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gateway.context.cached_answer import Endpoint
from gateway.context.scope import scoped_key
from gateway.errors import InvalidRequest

HEADER = "x-baton-cache"

_DECIDE_NOTHING = frozenset(
    {
        "metadata",
        "model",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "user",
    }
)
"""Fields that change who is told or how, not what; the model counts under the name that was resolved."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


CacheMode = Literal["use", "refresh", "off"]
"""Give a kept answer or keep a new one; only keep a new one; neither."""

_MODES: dict[str, CacheMode] = {"use": "use", "refresh": "refresh", "off": "off"}


def read_fields(body: bytes) -> dict[str, Any]:
    """Decode the fields of a request body.

    Raises:
        InvalidRequest: it is no JSON object.
    """
    try:
        return _decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"The request body could not be read: {error}.") from None


def is_determined(endpoint: Endpoint, fields: Mapping[str, Any]) -> bool:
    """Whether a request says that equal requests want equal answers: embeddings, temperature 0, or an explicit seed."""
    if endpoint == "embeddings":
        return True
    return fields.get("temperature") == 0 or fields.get("seed") is not None


def wanted_mode(header: str | None) -> CacheMode | None:
    """What the client asks for; None when it does not say.

    Args:
        header: the value of `x-baton-cache`.

    Raises:
        InvalidRequest: it is neither `use`, `refresh` nor `off`.
    """
    if header is None:
        return None
    mode = _MODES.get(header.strip().lower())
    if mode is None:
        text = f"The header '{HEADER}' must be use, refresh or off, not '{header[:40]}'."
        raise InvalidRequest(text, param=HEADER, code="invalid_value")
    return mode


def choose_mode(
    wanted: CacheMode | None, default: Literal["auto", "off"], endpoint: Endpoint, fields: Mapping[str, Any]
) -> CacheMode:
    """Settle what the cache does: what the client asks for, or else the default."""
    if wanted is not None:
        return wanted
    return "use" if default == "auto" and is_determined(endpoint, fields) else "off"


def cache_key(tenant: str, endpoint: Endpoint, model: str, fields: Mapping[str, Any]) -> bytes:
    """Derive the key of a request's answer.

    Top-level fields count in any order, and null as absent. Inside values the order counts: in a JSON schema it decides in
    which order a model writes the properties.

    Args:
        model: the name that was resolved, with whatever else decides what answers under it.
        fields: all fields of the request, as the client sent them.
    """
    deciding = [[name, fields[name]] for name in sorted(fields) if name not in _DECIDE_NOTHING and fields[name] is not None]
    return scoped_key(tenant, "answer", _encode([endpoint, model, deciding]))
