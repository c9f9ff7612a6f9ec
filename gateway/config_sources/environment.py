"""Overrides from the environment: `BATON_SERVER__PORT=9000`, `BATON_MODELS__MY_MODEL__SLOTS=4`.

The name is `BATON_`, the section, two underscores, the key, in upper case; sections with one table per name are not reached,
but for `models`. Of a model's name every character that is no letter
or digit becomes `_`; the model must be in the configuration already. The value is read by the type of its field; a list is
written as TOML (`["a", "b"]`). A variable of that form which names nothing is an error, as an unknown key in the file is.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.config_sources.reader import shown, unknown_key

PREFIX = "BATON_"
_SEPARATOR = "__"


def apply_environment(
    raw: dict[str, Any],
    environ: Mapping[str, str],
    sections: Mapping[str, type[msgspec.Struct]],
    engines: Mapping[str, type[msgspec.Struct]],
    errors: list[str],
) -> None:
    """Write every override in `environ` into `raw`, which has the shape of the TOML file.

    Args:
        sections: the Struct of each section that is one table.
        engines: the Struct of a model by its `engine`.
        errors: each mistake is appended here.
    """
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or _SEPARATOR not in variable:
            continue
        section, *path = variable.removeprefix(PREFIX).lower().split(_SEPARATOR)
        value = environ[variable]
        if section in sections and len(path) == 1:
            _set(raw.setdefault(section, {}), sections[section], variable, path[0], value, errors)
        elif section == "models" and len(path) == 2:
            model = _find_model(raw.get("models"), path[0])
            if model is None:
                errors.append(f"{variable}: the configuration has no model whose name reads {path[0].upper()}")
                continue
            cls = engines.get(str(model.get("engine", "gguf")))
            if cls is not None:
                _set(model, cls, variable, path[1], value, errors)
        else:
            known = ", ".join(sections)
            errors.append(f"{variable}: must read BATON_SECTION__KEY ({known}) or BATON_MODELS__MODEL__KEY")


def variable_name(model: str) -> str:
    """Spell a model's name as it stands in a variable."""
    return re.sub(r"[^A-Z0-9]", "_", model.upper())


def _find_model(models: object, name: str) -> dict[str, Any] | None:
    if not isinstance(models, dict):
        return None
    found = [table for model, table in models.items() if variable_name(model) == name.upper() and isinstance(table, dict)]
    return found[0] if len(found) == 1 else None


def _set(table: object, cls: type[msgspec.Struct], variable: str, key: str, value: str, errors: list[str]) -> None:
    fields = {field.name: field for field in msgspec.structs.fields(cls)}
    if key not in fields:
        errors.append(unknown_key(variable, key, fields))
        return
    try:
        parsed: object = tomllib.loads(f"value = {value}")["value"] if value.startswith("[") else value
        converted = msgspec.convert(parsed, fields[key].type, strict=False)
    except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
        errors.append(f"{variable}: {error} (it is {shown(value)})")
        return
    if isinstance(table, dict):
        table[key] = msgspec.to_builtins(converted)
