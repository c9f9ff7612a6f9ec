"""What can be written after `baton eval` and `baton export`. Loads nothing heavy: every command builds the whole parser."""

import argparse
from collections.abc import Callable
from typing import Any

_MODEL_HELP = "a GGUF file or a Hugging Face folder"
_TOKENS, _QUICK_TOKENS, _LEAST_TOKENS = 4096, 1024, 64
_EVAL_EXAMPLES = """\
examples:
  baton eval model.gguf                                     all precisions on two texts that come with Python
  baton eval model.gguf --quick --precision prefill=bf16,decode=auto,kv=int8
  baton eval model.gguf --text book.txt --text code.py --tokens 16384 --json

Precisions are named as in the configuration of a model: prefill, decode, head and kv. With both prefill and decode, the prefill
weights read the first half of each window and the decode weights the second, as they read prompts and answers. With only one of
them it reads both halves. kv alone rounds nothing but the cache.
"""


def add_eval(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add `eval` to the commands. `add` makes one command of a name and a sentence."""
    parser = add(
        commands,
        "eval",
        "measure how much quality the precisions of a model cost, on text, against the same model in fp32",
        epilog=_EVAL_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model_path", metavar="MODEL_PATH", help=_MODEL_HELP)
    parser.add_argument("--text", metavar="FILE", action="append", default=[], help="evaluate on this text (repeatable)")
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--tokens", metavar="N", type=_tokens, default=_TOKENS, help=f"how many of each text to read (default {_TOKENS})"
    )
    tokens.add_argument(
        "--quick", dest="tokens", action="store_const", const=_QUICK_TOKENS, help=f"the same as --tokens {_QUICK_TOKENS}"
    )
    parser.add_argument(
        "--precision",
        metavar="NAME=VALUE,...",
        type=_choice,
        action="append",
        help="evaluate only this: prefill=bf16,decode=int8,kv=int8, or a part of it (repeatable; default: 13 choices)",
    )
    parser.add_argument(
        "--threads", metavar="N", type=_threads, default=0, help="threads (default 0: as many as there are cores)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_export(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add `export` to the commands. `add` makes one command of a name and a sentence."""
    parser = add(commands, "export", "write a model as a Hugging Face folder, dequantised, with its tokenizer")
    parser.add_argument("model_path", metavar="MODEL_PATH", help=_MODEL_HELP)
    parser.add_argument("folder", metavar="FOLDER", help="the folder to make; it may exist if it is empty")
    parser.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), default="bf16", help="type of the weights (default bf16)")


def _tokens(text: str) -> int:
    return _number(text, _LEAST_TOKENS)


def _threads(text: str) -> int:
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"must be a number of at least {least}, not {text!r}")
    return number


def _choice(text: str) -> object:
    from backends.engine.evaluation.choice import parse_choice

    try:
        return parse_choice(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
