"""What can be written after `baton keys`. Loads nothing heavy, because every command builds the whole parser."""

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime
from time import time
from typing import Any

from gateway.priority import PRIORITIES

_SPAN = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_EXAMPLES = """\
examples:
  baton keys create --name alice                            all models, no limits
  baton keys create --name ci --models small --rpm 60 --expires 30d
  baton keys create --name ops --admin
  baton keys list
  baton keys revoke key_0123456789abcdef
"""


def add_keys(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add `keys` to the commands. `add` makes one command of a name and a sentence."""
    parser = add(
        commands,
        "keys",
        "create, list and revoke API keys; a running gateway follows within about a second",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="action", help="create, list or revoke")
    _add_create(add(actions, "create", "make a key and print it, once"))
    _add_common(add(actions, "list", "show all keys, also revoked and expired ones; never the keys themselves"))
    revoke = add(actions, "revoke", "end a key for good")
    revoke.add_argument("key_id", metavar="KEY_ID", help="as in the list: key_ and 16 digits")
    _add_common(revoke)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML configuration, which says where keys are stored")
    parser.add_argument("--json", action="store_true", help="print JSON")
    # The configuration is loaded as for `serve`, whose options these are.
    parser.set_defaults(model=[], fake=False)


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", required=True, help="who or what it is for")
    parser.add_argument("--models", metavar="A,B", type=_names, help="the models it may use (default: all)")
    parser.add_argument("--tenant", help="keys of one tenant share caches and conversations (default: shares with none)")
    parser.add_argument("--rpm", type=int, default=0, help="requests per minute (default 0: no limit)")
    parser.add_argument("--tpm", type=int, default=0, help="tokens per minute, prompt and answer (default 0: no limit)")
    parser.add_argument("--concurrency", type=int, default=0, help="requests at a time (default 0: no limit)")
    parser.add_argument("--budget", metavar="USD", type=float, default=0.0, help="money per period (default 0: no limit)")
    parser.add_argument(
        "--budget-period", choices=("day", "month", "total"), default="month", help="UTC day or month, or ever (default month)"
    )
    parser.add_argument("--priority", choices=PRIORITIES, default="standard", help="best class it queues in (default standard)")
    parser.add_argument("--weight", type=float, default=1.0, help="share beside other keys, up to 1000 (default 1)")
    parser.add_argument("--expires", metavar="WHEN", type=expiry, help="30d, 12h, 2027-01-31 or 2027-01-31T18:00+01:00")
    parser.add_argument("--admin", action="store_true", help="may administer the gateway")
    _add_common(parser)


def expiry(text: str, now: Callable[[], float] = time) -> int:
    """Read a span from now (`30d`; s, m, h, d or w) or an ISO date or time, which is UTC without a zone, as Unix seconds.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    if span := _SPAN.fullmatch(text):
        return int(now()) + int(span[1]) * _SECONDS[span[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no span such as 30d and no ISO date such as 2027-01-31") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("must name at least one model")
    return names
