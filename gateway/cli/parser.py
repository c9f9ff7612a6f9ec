"""What can be written on the command line."""

import argparse
from typing import Any

from gateway.cli.engine_options import add_eval, add_export
from gateway.cli.keys_options import add_keys
from gateway.version import gateway_version

DEFAULT_URL = "http://127.0.0.1:8000"

_SERVE_EXAMPLES = """\
examples:
  baton serve                                serve the embedded SmolLM2-135M-Instruct on http://127.0.0.1:8000
  baton serve --model qwen3-4b-q4_k_m.gguf   serve a GGUF file, under the name qwen3-4b-q4_k_m
  baton serve --model models/Qwen3-0.6B      serve a Hugging Face folder, on the torch engine
  baton serve --config gateway.toml          serve what a file says
  baton serve --fake                         answer without a model, to try a client

Settings can also come from the environment: BATON_SERVER__PORT=9000, BATON_MODELS__MY_MODEL__SLOTS=4, BATON_API_KEY=secret.
"""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of `baton`."""
    parser = argparse.ArgumentParser(
        prog="baton", description="One OpenAI-compatible gateway in front of very different engines."
    )
    parser.add_argument("--version", action="version", version=f"baton {gateway_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_serve(commands)
    _add_check_config(commands)
    _add_models(commands)
    _add_chat(commands)
    add_keys(commands, _add)
    _add_doctor(commands)
    add_eval(commands, _add)
    add_export(commands, _add)
    return parser


def _add(commands: Any, name: str, text: str, **more: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", **more)
    return parser


def _add_serve(commands: Any) -> None:
    parser = _add(
        commands,
        "serve",
        "start the gateway and its models",
        epilog=_SERVE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_sources(parser)
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1; others need an API key)")
    parser.add_argument("--port", type=int, help="port to listen on (default 8000; 0 takes a free one)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that serve (default 1; models that run here need 1)"
    )


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML configuration")
    parser.add_argument(
        "--model",
        metavar="PATH",
        action="append",
        default=[],
        help="serve this GGUF file or Hugging Face folder too (repeatable)",
    )
    parser.add_argument(
        "--engine",
        choices=("gguf", "torch"),
        help="what serves each --model (default: gguf, which is llama.cpp, for files; torch for folders, which only it can)",
    )
    parser.add_argument("--fake", action="store_true", help="serve a model named 'fake' that needs no file")


def _add_check_config(commands: Any) -> None:
    parser = _add(commands, "check-config", "check a configuration and print what it resolves to, without secrets")
    _add_sources(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of TOML")


def _add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help=f"a running gateway (default {DEFAULT_URL})")
    parser.add_argument("--api-key", help="API key (default: the variable BATON_API_KEY)")


def _add_models(commands: Any) -> None:
    parser = _add(commands, "models", "list the models of a running gateway, or of a configuration")
    _add_client(parser)
    parser.add_argument("--config", metavar="FILE", help="list the models of this file instead; asks no server")


def _add_chat(commands: Any) -> None:
    parser = _add(commands, "chat", "talk to a running gateway in the terminal; piped input is one message")
    _add_client(parser)
    parser.add_argument("--model", help="which model (default: the first that can chat)")
    parser.add_argument("--system", help="system prompt")
    parser.add_argument("--max-tokens", type=int, help="longest answer, in tokens")
    parser.add_argument("--temperature", type=float, help="0 always takes the likeliest token")


def _add_doctor(commands: Any) -> None:
    parser = _add(commands, "doctor", "look for what could keep the gateway from working well here")
    _add_sources(parser)
