"""Where the gateway keeps what must outlive its process: one SQLite file, and Redis where several gateways share state."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

MEMORY = ":memory:"
"""As a path: a database that lives and dies with the process."""


class StoreConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[store]`. An empty `path` means `$XDG_DATA_HOME/baton/baton.db`; an empty `redis_url` means no Redis."""

    path: str = ""
    redis_url: str = ""


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
