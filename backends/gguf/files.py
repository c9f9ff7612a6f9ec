"""Opening a model file so that nothing but a regular file ever gets read, and recognising it again later."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.gguf.errors import GgufError, shown


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells a file from another or from its own later state; as long as it is equal, the content is taken to be."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileIdentity":
        """The identity behind a `stat` result."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@contextmanager
def open_regular(path: Path, within: Path | None = None) -> Iterator[tuple[int, FileIdentity]]:
    """Open `path` for reading and yield the descriptor with the identity of what was really opened.

    Symbolic links are followed (model caches are made of them); with `within` their target must lie inside that folder.

    Raises:
        GgufError: the file is missing, not readable, not a regular file, or outside `within`. Never blocks on a FIFO.
    """
    try:
        real = path.resolve(strict=True)
        if within is not None and not real.is_relative_to(within.resolve()):
            raise GgufError("file lies outside the folder that models may come from")
        # Asked before opening, because opening a device can have effects, and again below, because it may have been exchanged.
        _demand_regular(real.stat())
        fd = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links; ValueError: a zero byte in the path
        if isinstance(error, GgufError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise GgufError(f"cannot open the file: {reason}") from error
    try:
        status = os.fstat(fd)
        _demand_regular(status)
        yield fd, FileIdentity.of(status)
    finally:
        os.close(fd)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the name of the file in front of the message of a `GgufError` that passes."""
    try:
        yield
    except GgufError as error:
        raise GgufError(f"{shown(path.name)}: {error}") from error.__cause__


def _demand_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a FIFO, socket or device"
        raise GgufError(f"this is {kind}, not a regular file")
