"""The digest of a file is computed once for as long as the file is the same, and never for another."""

import hashlib
import os
from pathlib import Path

import pytest

from backends.gguf.digest import DigestCache
from backends.gguf.errors import GgufError


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_digest_of_more_than_one_chunk(tmp_path: Path) -> None:
    content = os.urandom(2 * 1024**2 + 17)
    (tmp_path / "a").write_bytes(content)
    assert DigestCache().sha256(tmp_path / "a") == _sha256(content)


def test_digest_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    path, cache = tmp_path / "a", DigestCache()
    path.write_bytes(b"one")
    first = cache.sha256(path)
    status = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cache.sha256(path) == first  # same device, inode, size and time: not read again
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert cache.sha256(path) == _sha256(b"two")


def test_exchanged_file_is_not_mistaken(tmp_path: Path) -> None:
    path, cache = tmp_path / "a", DigestCache()
    path.write_bytes(b"one")
    cache.sha256(path)
    status = path.stat()
    (tmp_path / "b").write_bytes(b"two")
    os.utime(tmp_path / "b", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(tmp_path / "b", path)
    assert cache.sha256(path) == _sha256(b"two")


def test_cache_forgets_the_file_that_was_not_asked_for_longest(tmp_path: Path) -> None:
    cache, paths = DigestCache(capacity=2), [tmp_path / name for name in "abc"]
    stamps = {}
    for path in paths:
        path.write_bytes(b"one")
    for path in (paths[0], paths[1], paths[0], paths[2]):
        cache.sha256(path)
    for path in paths:
        stamps[path] = path.stat().st_mtime_ns
        path.write_bytes(b"two")
        os.utime(path, ns=(stamps[path], stamps[path]))
    assert cache.sha256(paths[0]) == _sha256(b"one")
    assert cache.sha256(paths[2]) == _sha256(b"one")
    assert cache.sha256(paths[1]) == _sha256(b"two")


def test_verify_accepts_either_case_and_names_both_digests(tmp_path: Path) -> None:
    path, cache = tmp_path / "a", DigestCache()
    path.write_bytes(b"one")
    cache.verify(path, _sha256(b"one").upper())
    with pytest.raises(GgufError, match=f"'a': SHA-256 is {_sha256(b'one')}, expected {'0' * 64}"):
        cache.verify(path, "0" * 64)


def test_only_regular_files_are_hashed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GgufError, match="'pipe': this is a FIFO, socket or device"):
        DigestCache().sha256(tmp_path / "pipe")
