"""Reading model files by position: opened once, recognised again, and never mapped.

A file that shrinks under a mapping kills the process; here it raises. Importing this loads no torch.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.engine.errors import ModelFileError
from backends.gguf.errors import GgufError, shown
from backends.gguf.files import FileIdentity, naming, open_regular


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file whose header was checked, and which file that was. `within` is the folder that it must lie in, if any."""

    path: Path
    identity: FileIdentity
    within: Path | None = None


class OpenFiles:
    """The files of one model, open for reading.

    Raises:
        ModelFileError: a file cannot be opened, or is another than the one that was checked.
    """

    def __init__(self, files: Sequence[ModelFile]) -> None:
        self._descriptors: dict[Path, int] = {}
        with ExitStack() as stack:
            stack.callback(self.close)
            for file in files:
                with opened(file.path, file.within) as (fd, identity):
                    if identity != file.identity:
                        raise GgufError("file changed after its header was checked")
                    self._descriptors[file.path] = os.dup(fd)
            stack.pop_all()

    def read_into(self, path: Path, buffer: memoryview, offset: int) -> None:
        """Fill a buffer of bytes from a position in a file. Raises `ModelFileError` where it ends before or cannot be read."""
        with failing_clearly(path):
            fill(self._descriptors[path], buffer, offset)

    def close(self) -> None:
        """Close all files; a second time does nothing."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def read_small(path: Path, limit: int, within: Path | None = None) -> bytes:
    """The content of a file of at most `limit` bytes. Raises `ModelFileError` otherwise."""
    with opened(path, within) as (fd, identity):
        if identity.size > limit:
            raise GgufError(f"file has {identity.size:,} bytes, above the limit of {limit:,}")
        content = bytearray(identity.size)
        fill(fd, memoryview(content), 0)
        return bytes(content)


@contextmanager
def opened(path: Path, within: Path | None = None) -> Iterator[tuple[int, FileIdentity]]:
    """Open a regular file as `backends.gguf.files` does. `GgufError` and `OSError` inside come out as `ModelFileError`."""
    with failing_clearly(path), open_regular(path, within) as (fd, identity):
        yield fd, identity


@contextmanager
def failing_clearly(path: Path) -> Iterator[None]:
    """Turn `GgufError` and `OSError` into `ModelFileError` that names the file."""
    try:
        with naming(path):
            yield
    except GgufError as error:
        raise ModelFileError(str(error)) from error
    except OSError as error:
        raise ModelFileError(f"{shown(path.name)}: cannot read the file: {error.strerror}") from error


def fill(fd: int, buffer: memoryview, offset: int) -> None:
    """Fill a buffer of bytes from a position. Raises `GgufError` where the file ends before, and `OSError`."""
    done = 0
    while done < len(buffer):
        count = os.preadv(fd, [buffer[done:]], offset + done)
        if count == 0:
            raise GgufError(f"file ends at byte {offset + done:,}, although it was longer when it was opened")
        done += count
