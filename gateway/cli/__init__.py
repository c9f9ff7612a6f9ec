"""The command `baton`."""

from gateway.cli.command import main

__all__ = ["main"]
