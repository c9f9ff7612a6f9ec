"""`baton check-config`: the configuration as the gateway would use it."""

import argparse
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.cli.settings import print_errors, settings_from
from gateway.config import ENGINES, NAMED, SECTIONS, Settings, missing_secrets
from gateway.config_sources.reader import ConfigError
from gateway.config_sources.toml import quoted, write_toml

MASK = "***"
_PASSWORD = re.compile(r"(//[^/@]*:)[^/@]*@")


def run_check_config(arguments: argparse.Namespace) -> int:
    """Print the resolved configuration (exit code 0) or all mistakes (1)."""
    try:
        settings = settings_from(arguments)
        if errors := missing_secrets(settings.models, os.environ):
            raise ConfigError(errors)
    except ConfigError as error:
        print_errors(error)
        return 1
    print(as_json(settings) if arguments.json else as_toml(settings))
    return 0


def as_toml(settings: Settings) -> str:
    """Write settings as a file that loads again, but for secrets, which are masked; of API keys only the number is told."""
    tables: dict[str, Mapping[str, object]] = {}
    for name, section in _sections(settings).items():
        if name in SECTIONS:
            tables[name] = section
        else:
            tables |= {f"{name}.{quoted(key)}": table for key, table in section.items()}
    return f"# {_count(settings)} API keys are set.\n{write_toml(tables)}".rstrip()


def as_json(settings: Settings) -> str:
    """Write settings as JSON, with the same masks; of API keys only the number is told."""
    content = {**_sections(settings), "api_keys": _count(settings)}
    return msgspec.json.format(msgspec.json.encode(content)).decode()


def _count(settings: Settings) -> int:
    return len(settings.api_key_digests | settings.admin_key_digests)


def _sections(settings: Settings) -> dict[str, dict[str, Any]]:
    """Every section as plain data: `models` behind `server`, then the others in the order of `Settings`."""
    sections: dict[str, dict[str, Any]] = {"server": msgspec.to_builtins(settings.server), "models": _models(settings)}
    for name in (*NAMED, *SECTIONS):
        sections.setdefault(name, msgspec.to_builtins(getattr(settings, name)))
    sections["store"]["redis_url"] = _PASSWORD.sub(r"\1" + MASK + "@", sections["store"]["redis_url"])
    return sections


def _models(settings: Settings) -> dict[str, dict[str, Any]]:
    tables = {}
    for name, model in settings.models.items():
        engine = next(engine for engine, cls in ENGINES.items() if type(model) is cls)
        table = tables[name] = {"engine": engine} | msgspec.to_builtins(model)
        if "headers" in table:
            table["headers"] = dict.fromkeys(table["headers"], MASK)
    return tables
