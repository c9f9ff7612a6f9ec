"""`baton check-config`: the configuration as the gateway would use it."""

import argparse

import msgspec

from gateway.cli.settings import print_errors, settings_from
from gateway.config import ENGINES, Settings
from gateway.config_sources.reader import ConfigError
from gateway.config_sources.toml import quoted, write_toml


def run_check_config(arguments: argparse.Namespace) -> int:
    """Print the resolved configuration (exit code 0) or all mistakes (1)."""
    try:
        settings = settings_from(arguments)
    except ConfigError as error:
        print_errors(error)
        return 1
    print(as_json(settings) if arguments.json else as_toml(settings))
    return 0


def as_toml(settings: Settings) -> str:
    """Write settings as a file that loads again; of API keys only the number is told, in a comment."""
    tables = {"server": msgspec.to_builtins(settings.server)}
    tables |= {f"models.{quoted(name)}": table for name, table in _models(settings).items()}
    return f"# {len(settings.api_key_digests)} API keys are set.\n{write_toml(tables)}".rstrip()


def as_json(settings: Settings) -> str:
    """Write settings as JSON; of API keys only the number is told."""
    content = {
        "server": settings.server,
        "models": _models(settings),
        "api_keys": len(settings.api_key_digests),
    }
    return msgspec.json.format(msgspec.json.encode(content)).decode()


def _models(settings: Settings) -> dict[str, dict[str, object]]:
    tables = {}
    for name, model in settings.models.items():
        engine = next(engine for engine, cls in ENGINES.items() if type(model) is cls)
        tables[name] = {"engine": engine} | msgspec.to_builtins(model)
    return tables
