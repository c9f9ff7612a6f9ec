"""Where the gateway keeps things: the SQLite file, and Redis where it is configured."""

import asyncio
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from gateway.cli.checks.finding import Finding
from gateway.config import Settings
from gateway.store.config import MEMORY, database_path
from gateway.store.errors import StoreDown
from gateway.store.redis import RedisConfig, RedisStore

_TIMEOUT_S = 5.0
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)
_MIN_REDIS = 5
"""Since then a script may read the clock and write (replication of effects)."""


def check_database(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Can the SQLite file be written, and does it lie on a local disk?"""
    path = database_path(settings.store, environ)
    if path == MEMORY:
        return Finding("ok", "database", "in memory: it ends with the process")
    file = Path(path).absolute()
    try:
        if file.exists():
            _try_to_write(file)
        elif (refusal := _folder_refusal(file)) is not None:
            return refusal
    except sqlite3.Error as error:
        return Finding("fail", "database", f"{file}: {error}", "check its permissions, or set store.path")
    kind = _file_system(file)
    if kind in _NETWORK:
        fix = "set store.path to a local disk: SQLite's write-ahead log does not work over a network"
        return Finding("warn", "database", f"{file} lies on {kind}", fix)
    return Finding("ok", "database", f"{file} can be written" if file.exists() else f"{file} will be created")


def check_redis(settings: Settings) -> list[Finding]:
    """Does Redis answer, and is it new enough? Nothing where none is configured."""
    if not settings.store.redis_url:
        return []
    try:
        config = RedisConfig(url=settings.store.redis_url, timeout_s=_TIMEOUT_S)
        return [asyncio.run(_ask(config))]
    except ModuleNotFoundError as error:
        return [Finding("fail", "redis", f"{error.name} is not installed", "pip install 'baton-llm[redis]'")]
    except ValueError as error:
        return [Finding("fail", "redis", f"store.redis_url: {error}", "correct it")]


async def _ask(config: RedisConfig) -> Finding:
    store = RedisStore(config)
    try:
        info = (await store.call("INFO", "server")).decode("utf-8", "replace")
    except StoreDown as error:
        cause = error.__cause__
        text = f"{config.address} does not answer: {type(cause).__name__}: {cause}"
        return Finding("fail", "redis", text, "check the url and its password, and that the server runs")
    finally:
        await store.close()
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    name, version = ("Valkey", fields["valkey_version"]) if "valkey_version" in fields else ("Redis", fields["redis_version"])
    text = f"{config.address} answers: {name} {version}"
    if int(version.partition(".")[0]) < _MIN_REDIS:
        return Finding("warn", "redis", text, f"use Redis {_MIN_REDIS} or later, or Valkey")
    return Finding("ok", "redis", text)


def _try_to_write(file: Path) -> None:
    """Take the lock that a write needs, and change nothing. Raises sqlite3.Error."""
    connection = sqlite3.connect(f"file:{file}?mode=rw", uri=True, timeout=_TIMEOUT_S, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def _folder_refusal(file: Path) -> Finding | None:
    folder = next(parent for parent in file.parents if parent.exists())
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return None
    return Finding("fail", "database", f"{file} cannot be created in {folder}", "set store.path, or the folder's permissions")


def _file_system(file: Path) -> str:
    """The type of the file system that a path is on, as proc(5) names it; empty where that cannot be said."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    real = file.resolve()
    found, kind = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = Path(before.split()[4].encode().decode("unicode_escape"))
        # Of two on one place, the later one is seen.
        if (real == mount or mount in real.parents) and len(mount.parts) >= found:
            found, kind = len(mount.parts), after.split()[0]
    return kind
