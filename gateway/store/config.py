"""Where the gateway keeps what must outlive its process: one SQLite file, and Redis where several gateways share state."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

MEMORY = ":memory:"
"""As a path: a database that lives and dies with the process."""


class StoreConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[store]`. An empty `path` means `$XDG_DATA_HOME/baton/baton.db`; an empty `redis_url` means no Redis.

    A command that Redis does not answer within `redis_timeout_s` counts as failed. Limits are then kept by each gateway alone,
    so the bound must also hold for a busy gateway, whose own delays count.
    """

    path: str = ""
    redis_url: str = ""
    redis_timeout_s: Annotated[float, Meta(gt=0, le=5)] = 0.25


def database_path(config: StoreConfig, environ: Mapping[str, str]) -> str:
    """Say where the SQLite file is, whether it exists or not. `environ` is usually `os.environ`.

    Source: XDG Base Directory Specification 0.8, which has relative values of `XDG_DATA_HOME` ignored.
    """
    if config.path:
        return config.path if config.path == MEMORY else str(Path(config.path).expanduser())
    data = Path(environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        data = Path.home() / ".local" / "share"
    return str(data / "baton" / "baton.db")
