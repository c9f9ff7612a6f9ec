"""`baton serve`."""

import argparse

from gateway.cli.settings import print_errors, settings_from
from gateway.config_sources.reader import ConfigError


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    try:
        settings_from(arguments)
        # Only now: with a wrong configuration there is no need to load a web framework.
        from gateway.server import serve

        return serve(lambda: settings_from(arguments))
    except ConfigError as error:
        print_errors(error)
        return 1
