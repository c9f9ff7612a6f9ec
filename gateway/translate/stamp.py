"""What every answer says about itself: id, time, model, server."""

import time
import uuid
from functools import cache
from typing import NamedTuple

from gateway.version import gateway_version


class Stamp(NamedTuple):
    """The constant fields of an answer and of all its chunks; `created` is in Unix seconds."""

    id: str
    created: int
    model: str
    fingerprint: str


def new_stamp(prefix: str, model: str) -> Stamp:
    """Start an answer: `chatcmpl` or `cmpl`, then a random id."""
    return Stamp(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), model, fingerprint())


@cache
def fingerprint() -> str:
    """Name the server version that made an answer (`baton-1.2.3`)."""
    return f"baton-{gateway_version()}"
