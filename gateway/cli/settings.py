"""From command-line options to `Settings`, for every command that needs a configuration."""

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any

from gateway.config import Settings, load_settings
from gateway.config_sources.reader import ConfigError


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Load the configuration that the options name.

    Raises:
        ConfigError: with every mistake that was found.
    """
    path = Path(arguments.config) if arguments.config else None
    return load_settings(path, os.environ, _overrides(arguments))


def print_errors(error: ConfigError) -> None:
    """Write every mistake to stderr, one a line."""
    for line in error.errors:
        print(f"baton: {line}", file=sys.stderr)


def _overrides(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    server = {key: getattr(arguments, key, None) for key in ("host", "port", "workers")}
    models: dict[str, Any] = {}
    for file in arguments.model:
        name = model_name(file)
        if name in models:
            raise ConfigError([f"--model {file}: {name} is served already; name the models in a --config file"])
        engine = arguments.engine or ("torch" if Path(file).is_dir() else "gguf")
        models[name] = {"engine": engine, "path": str(Path(file).absolute())}
    if arguments.fake:
        models["fake"] = {"engine": "fake"}
    return {"server": {key: value for key, value in server.items() if value is not None}} | (
        {"models": models} if models else {}
    )


def model_name(file: str) -> str:
    """Make a public name of a file's or folder's: without suffix, in lower case, other characters than `a-z0-9._-` as `-`."""
    stem = Path(file).absolute().name.removesuffix(".gguf").lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-") or "model"
