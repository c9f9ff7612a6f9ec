"""`baton models`: what is served, and how it is."""

import argparse
import os
import sys
from pathlib import Path

from gateway.cli.client import ClientError, list_models, model_states, open_client
from gateway.cli.settings import print_errors
from gateway.config_sources.reader import ConfigError


def run_models(arguments: argparse.Namespace) -> int:
    """Print one line per model."""
    if arguments.config:
        return _from_config(Path(arguments.config))
    try:
        with open_client(arguments) as client:
            models = list_models(client)
            states = model_states(client)
    except ClientError as error:
        print(f"baton: {error}", file=sys.stderr)
        return 1
    rows: list[tuple[str, ...]] = []
    for model in models:
        health = states.get(model.id)
        context = f"{model.max_model_len} tokens" if model.max_model_len else ""
        rows.append((model.id, health.state if health else "", context, health.detail if health else ""))
    _print_table(("MODEL", "STATE", "CONTEXT", ""), rows)
    return 0


def _from_config(path: Path) -> int:
    from gateway.config import ENGINES, load_settings

    try:
        settings = load_settings(path, os.environ)
    except ConfigError as error:
        print_errors(error)
        return 1
    engines = {cls: engine for engine, cls in ENGINES.items()}
    rows: list[tuple[str, ...]] = [
        (name, engines[type(model)], getattr(model, "path", "") or getattr(model, "url", ""))
        for name, model in settings.models.items()
    ]
    rows += [
        (name, "route", ", ".join(member.model for member in route.deployments)) for name, route in settings.routes.items()
    ]
    _print_table(("MODEL", "ENGINE", "WHERE"), rows)
    return 0


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
