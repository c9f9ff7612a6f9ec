"""Which JSON schemas are accepted for constrained output, checked before anything is compiled.

A schema comes from a request: it is walked without recursion, with bounds on depth, size and every number that multiplies work.
A keyword that the grammar compiler would ignore is refused, so that nothing is promised that is not enforced, and so is a
schema that no finite value satisfies (it would never let the model stop). Knows nothing of grammars.
Source: JSON Schema 2020-12; llguidance `docs/json_schema.md`; llama.cpp issues 25283, 19008, 26600.
"""

from typing import Any

import msgspec

from backends.errors import Rejected
from backends.text.pattern_size import pattern_size
from backends.text.schema_recursion import endless

MAX_DEPTH = 64
"""Containers within containers: 32 schemas, as each sits in an object or a list of its own."""
MAX_NODES = 4096
MAX_BYTES = 64 << 10
MAX_PROPERTIES = 512
MAX_ENUM = 1024
MAX_PATTERN_CHARS = 1024
MAX_PATTERN_SIZE = 10_000
_MAX_NUMBERS = {
    "minLength": 100_000,
    "maxLength": 100_000,
    "minItems": 10_000,
    "maxItems": 10_000,
    "minProperties": 64,
    "maxProperties": 10_000,
}

_SCHEMA = frozenset({"items", "additionalProperties"})
_SCHEMA_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMA_MAP = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_DATA = frozenset({"enum", "const", "required", "type", "$ref", "format", "pattern"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_NOTES = frozenset(
    {"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment"}
)
_KNOWN = _SCHEMA | _SCHEMA_LIST | _SCHEMA_MAP | _DATA | _BOUNDS | _NOTES | _MAX_NUMBERS.keys()


def schema_text(schema: dict[str, Any], param: str) -> str:
    """Check a schema and return it as JSON text.

    Raises:
        Rejected: out of bounds, not a schema, an unknown keyword, or satisfied by no finite value; the error carries `param`.
    """
    _walk(schema, param)
    if endless(schema):
        raise Rejected("the schema is recursive without an end: no finite value satisfies it", param=param)
    try:
        text = msgspec.json.encode(schema)
    except (ValueError, OverflowError, TypeError, msgspec.MsgspecError) as error:
        raise Rejected(f"the schema cannot be written as JSON: {error}"[:300], param=param) from error
    if len(text) > MAX_BYTES:
        raise Rejected(f"the schema has {len(text)} bytes, at most {MAX_BYTES} are allowed", param=param)
    return text.decode()


def _walk(schema: dict[str, Any], param: str) -> None:
    """Visit every value once: `role` says whether it is a schema, a list or map of schemas, or data."""
    stack: list[tuple[Any, str, int]] = [(schema, "schema", 1)]
    nodes = 0
    while stack:
        value, role, depth = stack.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise Rejected(f"the schema has more than {MAX_NODES} values", param=param)
        if role != "data":
            _check_shape(value, role, param)
        if not isinstance(value, (dict, list, tuple)):
            continue
        if depth > MAX_DEPTH:
            raise Rejected(f"the schema is nested more than {MAX_DEPTH} levels deep", param=param)
        if isinstance(value, dict):
            stack.extend((item, _role(key, role), depth + 1) for key, item in value.items())
        else:
            stack.extend((item, "schema" if role == "list" else "data", depth + 1) for item in value)


def _role(key: str, parent: str) -> str:
    if parent == "map":
        return "schema"
    if parent == "data":
        return "data"
    return "schema" if key in _SCHEMA else "list" if key in _SCHEMA_LIST else "map" if key in _SCHEMA_MAP else "data"


def _check_shape(value: Any, role: str, param: str) -> None:
    if role == "schema":
        if isinstance(value, dict):
            _check_keywords(value, param)
        elif not isinstance(value, bool):
            raise Rejected("a schema must be an object or a boolean", param=param)
    elif role == "list":
        if not isinstance(value, (list, tuple)):
            raise Rejected("anyOf, oneOf, allOf and prefixItems must be lists of schemas", param=param)
    elif not isinstance(value, dict):
        raise Rejected("properties, patternProperties and $defs must be objects of schemas", param=param)
    elif len(value) > MAX_PROPERTIES:
        raise Rejected(
            f"an object in the schema has {len(value)} properties, at most {MAX_PROPERTIES} are allowed", param=param
        )


def _check_keywords(schema: dict[str, Any], param: str) -> None:
    for key, value in schema.items():
        if key not in _KNOWN:
            raise Rejected(f"the schema keyword {key[:64]!r} is not supported", param=param)
        if key in _MAX_NUMBERS:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBERS[key]:
                raise Rejected(f"{key} must be a whole number from 0 to {_MAX_NUMBERS[key]}", param=param)
        elif key == "enum" and isinstance(value, (list, tuple)) and len(value) > MAX_ENUM:
            raise Rejected(f"an enum has {len(value)} values, at most {MAX_ENUM} are allowed", param=param)
        elif key == "required" and not (isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)):
            raise Rejected("required must be a list of names", param=param)
        elif key == "pattern":
            _check_pattern(value, param)
        elif key == "patternProperties" and isinstance(value, dict):
            for pattern in value:
                _check_pattern(pattern, param)


def _check_pattern(pattern: Any, param: str) -> None:
    if not isinstance(pattern, str):
        raise Rejected("pattern must be a string", param=param)
    if len(pattern) > MAX_PATTERN_CHARS:
        raise Rejected(f"a pattern has {len(pattern)} characters, at most {MAX_PATTERN_CHARS} are allowed", param=param)
    size = pattern_size(pattern)
    if size > MAX_PATTERN_SIZE:
        raise Rejected(
            f"a pattern's repetitions multiply to {size} places, at most {MAX_PATTERN_SIZE} are allowed", param=param
        )
