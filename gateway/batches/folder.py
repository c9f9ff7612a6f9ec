"""The contents of files, as files in one folder: written durably, read in pieces, never on the event loop.

They do not lie in the database, because a hundred megabytes in one transaction would hold up keys and limits, and because
SQLite does not give the room of deleted rows back. A file appears under its name only when it is complete and on the disk.
What a crash leaves behind has no row in the database and is swept away.

Source: the Linux manual, fsync(2), for the folder that must be synced after a new name.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir
from typing import IO, NamedTuple, ParamSpec, TypeVar
from uuid import uuid4

P = ParamSpec("P")
T = TypeVar("T")

PIECE_BYTES = 256 << 10
_THREADS = 4


class RawLine(NamedTuple):
    """A line without its end; `number` counts from 1, and `data` is None when it is longer than is read."""

    number: int
    data: bytes | None


class Position(NamedTuple):
    """Where to read on in a file of lines."""

    offset: int = 0
    number: int = 1


class Folder:
    """One folder. Names are made by the gateway, never by clients.

    All methods raise OSError when the disk fails, and FileNotFoundError for a name that is not there.

    Args:
        path: it is created with mode 0700 when the first file is written; None means a temporary one that `close` removes.
    """

    def __init__(self, path: Path | None) -> None:
        self._is_temporary = path is None
        # Threads of our own: slow disks hold up nobody else, and `close` knows when the last one has let go.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="batches")
        self._path = path or Path(gettempdir()) / f"baton-batches-{uuid4().hex}"

    async def write(self, name: str, source: IO[bytes]) -> int:
        """Copy what a binary file still holds into a new file, and return how many bytes that were."""
        return await self._blocking(self._create, name, _pieces(source))

    async def append(self, name: str, data: bytes) -> None:
        """Add to the end of a file, which need not exist."""
        await self._blocking(self._append, name, data)

    async def join(self, name: str, parts: Sequence[tuple[str, int]]) -> int:
        """Make a new file of the first bytes of others (name, bytes), and return its size."""
        return await self._blocking(self._create, name, self._joined(parts))

    async def lines(self, name: str, start: Position, *, max_line_bytes: int) -> tuple[list[RawLine], Position]:
        """Read the next lines, about a quarter of a megabyte or one line; none at the end of the file."""
        return await self._blocking(self._read_lines, name, start, max_line_bytes)

    async def open(self, name: str) -> IO[bytes]:
        """Open a file for reading. The caller closes it, and reads it in a thread."""
        return await self._blocking((self._path / name).open, "rb")

    async def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return await self._blocking((self._path / name).is_file)

    async def remove(self, *names: str) -> None:
        """Delete files; those that are gone already do not matter."""
        await self._blocking(self._remove, names)

    async def names(self, *, older_than_s: float = 0.0) -> list[str]:
        """The names of all files that were not written to for that long."""
        return await self._blocking(self._names, older_than_s)

    async def close(self) -> None:
        """Finish what was begun, and remove a temporary folder. May be called twice; nothing else works afterwards."""
        await asyncio.to_thread(self._threads.shutdown)
        if self._is_temporary:
            await asyncio.to_thread(rmtree, self._path, ignore_errors=True)

    async def _blocking(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args, **kwargs))

    def _create(self, name: str, pieces: Iterable[bytes]) -> int:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished, size = self._path / f"new-{uuid4().hex}", 0
        try:
            with _open_private(unfinished, os.O_EXCL) as file:
                for piece in pieces:
                    size += file.write(piece)
                _sync(file)
            unfinished.rename(self._path / name)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        self._sync_names()
        return size

    def _append(self, name: str, data: bytes) -> None:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_private(self._path / name, os.O_APPEND) as file:
            is_new = file.tell() == 0
            file.write(data)
            _sync(file)
        if is_new:
            self._sync_names()

    def _joined(self, parts: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        for name, size in parts:
            with (self._path / name).open("rb") as file:
                left = size
                while left > 0:
                    piece = file.read(min(PIECE_BYTES, left))
                    if not piece:
                        raise OSError(f"{name} is shorter than was recorded")
                    left -= len(piece)
                    yield piece

    def _read_lines(self, name: str, start: Position, max_line_bytes: int) -> tuple[list[RawLine], Position]:
        lines: list[RawLine] = []
        offset, number = start
        with (self._path / name).open("rb") as file:
            file.seek(offset)
            while file.tell() - offset < PIECE_BYTES and (line := file.readline(max_line_bytes + 1)):
                data: bytes | None = line.removesuffix(b"\n")
                if data is not None and len(data) > max_line_bytes:
                    data = None
                    _skip_line(file)
                lines.append(RawLine(number, data))
                number += 1
            return lines, Position(file.tell(), number)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self._path / name).unlink(missing_ok=True)

    def _names(self, older_than_s: float) -> list[str]:
        names, now = [], time.time()
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._path):
                with suppress(FileNotFoundError):
                    if now - entry.stat().st_mtime >= older_than_s:
                        names.append(entry.name)
        return names

    def _sync_names(self) -> None:
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _open_private(path: Path, flags: int) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600), "ab" if flags & os.O_APPEND else "wb")


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(PIECE_BYTES):
        yield piece


def _skip_line(file: IO[bytes]) -> None:
    while (piece := file.readline(PIECE_BYTES)) and not piece.endswith(b"\n"):
        pass
