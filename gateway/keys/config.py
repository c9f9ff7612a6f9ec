"""What can be set about API keys."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class KeysConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[keys]`.

    Attributes:
        store: where keys that were created with `baton keys` or the admin API are kept; `redis` shares them between machines.
        admin_key_file: one admin key a line, plain or as `sha256:<64 hex digits>`; besides the variable `BATON_ADMIN_KEY`.
        required: ask for a key even while none exists, so that a gateway without keys is closed instead of open.
        refresh_s: how long a key that was created or revoked elsewhere may go unnoticed.
    """

    store: Literal["sqlite", "redis"] = "sqlite"
    admin_key_file: str = ""
    required: bool = False
    refresh_s: Annotated[float, Meta(ge=0.05, le=60)] = 1.0
