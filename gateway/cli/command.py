"""Reads the command line and calls one function per command.

Each command's module is imported only when its command runs: `baton --help` answers at once.
"""

import argparse
import sys
from collections.abc import Sequence

from gateway.cli.parser import build_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `baton` and return its exit code: 0 good, 1 failed, 2 wrong usage."""
    arguments = build_parser().parse_args(argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (`| head`) is gone. Python would complain once more when it flushes at exit.
        sys.stderr.close()
        return 0


def _run(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "serve":
            from gateway.cli.serve import run_serve

            return run_serve(arguments)
        case "check-config":
            from gateway.cli.check_config import run_check_config

            return run_check_config(arguments)
        case "models":
            from gateway.cli.models import run_models

            return run_models(arguments)
        case "chat":
            from gateway.cli.chat import run_chat

            return run_chat(arguments)
        case "keys":
            from gateway.cli.keys import run_keys

            return run_keys(arguments)
        case "eval":
            from gateway.cli.eval import run_eval

            return run_eval(arguments)
        case "export":
            from gateway.cli.export import run_export

            return run_export(arguments)
        case _:
            from gateway.cli.doctor import run_doctor

            return run_doctor(arguments)
