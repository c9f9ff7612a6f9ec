"""SHA-256 of model files: streamed, and remembered for as long as the file is the same.

A model of many gigabytes is hashed once and not at every load. The same means the same device, inode, size and modification
time; whoever can rewrite a file and set its clock back defeats that, so keep model folders read-only to the engine.
"""

import hashlib
import os
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from backends.gguf.errors import GgufError, shown
from backends.gguf.files import FileIdentity, naming, open_regular

_CHUNK_BYTES = 1024**2


class DigestCache:
    """Remembers the digests of the `capacity` files that were asked for last. Safe to use from several threads."""

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._digests: OrderedDict[FileIdentity, str] = OrderedDict()
        self._lock = Lock()

    def sha256(self, path: str | Path, *, within: Path | None = None) -> str:
        """Return the digest in lower-case hexadecimal. Blocks for as long as reading the file takes, unless it is remembered.

        Raises:
            GgufError: the file cannot be opened (see `open_regular`), cannot be read, or changed while it was read.
        """
        path = Path(path)
        with naming(path), open_regular(path, within) as (fd, identity):
            known = self._recall(identity)
            if known is not None:
                return known
            digest = _hash(fd)
            if FileIdentity.of(os.fstat(fd)) != identity:
                raise GgufError("file changed while its SHA-256 was computed")
        self._remember(identity, digest)
        return digest

    def verify(self, path: str | Path, expected: str, *, within: Path | None = None) -> None:
        """Raise `GgufError` unless the file has the expected SHA-256 (hexadecimal, in either case)."""
        actual = self.sha256(path, within=within)
        if actual != expected.lower():
            raise GgufError(f"{shown(Path(path).name)}: SHA-256 is {actual}, expected {expected[:64].lower()}")

    def _recall(self, identity: FileIdentity) -> str | None:
        with self._lock:
            known = self._digests.get(identity)
            if known is not None:
                self._digests.move_to_end(identity)
            return known

    def _remember(self, identity: FileIdentity, digest: str) -> None:
        with self._lock:
            self._digests[identity] = digest
            while len(self._digests) > self._capacity:
                self._digests.popitem(last=False)


def _hash(fd: int) -> str:
    digest, offset = hashlib.sha256(), 0
    try:
        while piece := os.pread(fd, _CHUNK_BYTES, offset):
            digest.update(piece)
            offset += len(piece)
    except OSError as error:
        raise GgufError(f"cannot read the file at offset {offset:,}: {error.strerror}") from error
    return digest.hexdigest()
