"""Writes a configuration as TOML 1.0: tables of scalars and lists, which is all that settings consist of."""

import json
from collections.abc import Mapping


def write_toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    """Write tables by their dotted header (`models."a.b"`, see `quoted`). Values that are None are left out."""
    blocks = []
    for header, table in tables.items():
        lines = [f"{quoted(key)} = {_value(value)}" for key, value in table.items() if value is not None]
        blocks.append("\n".join([f"[{header}]", *lines]) + "\n")
    return "\n".join(blocks)


def quoted(key: str) -> str:
    """Quote a key where TOML asks for it."""
    is_bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if is_bare else _text(key)


def _text(value: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{quoted(str(key))} = {_value(item)}' for key, item in value.items())} }}"
    raise TypeError(f"TOML cannot hold {type(value).__name__}")
