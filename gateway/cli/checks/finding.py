"""One line of `baton doctor`."""

from typing import Literal

from msgspec import Struct


class Finding(Struct, frozen=True):
    """What was looked at, how it is, and what to do about it; `fix` is empty when nothing needs to be done."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    text: str
    fix: str = ""
