"""Whatever is done to a valid file, the reader either accepts it or raises `GgufError`, after a bounded number of reads."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.gguf.errors import GgufError
from backends.gguf.files import open_regular
from backends.gguf.header import parse_header
from backends.gguf.kv_cache import kv_bytes_per_token
from backends.gguf.limits import Limits
from backends.gguf.model import GgufFile
from backends.gguf.read import Guard, read_gguf
from backends.gguf.reader import Cursor
from tests.backends.gguf.build import small_model

VALID = small_model().to_bytes()
_HEADER = VALID.index(b"\x11" * 64)

_edits = st.lists(
    st.tuples(
        st.integers(0, _HEADER - 1),
        st.one_of(
            st.binary(min_size=1, max_size=1), st.binary(min_size=8, max_size=8), st.sampled_from([b"\0" * 8, b"\xff" * 8])
        ),
    ),
    min_size=1,
    max_size=6,
)


@contextmanager
def _file(content: bytes) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=".gguf", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


def _use(model: GgufFile) -> None:
    """Look at everything that a checked file offers; none of it may raise."""
    for name in dir(type(model)):
        if not name.startswith("_"):
            getattr(model, name)
    model.without_arrays()
    kv_bytes_per_token(model, "q8_0", "f16")


def _try(content: bytes) -> None:
    with _file(content) as path:
        for arrays in (True, False):
            for guard in (Guard(), Guard(check_architecture=False)):
                with suppress(GgufError):
                    _use(read_gguf(path, arrays=arrays, guard=guard))
        with open_regular(path) as (fd, identity):
            cursor = Cursor(fd, identity.size, Limits())
            with suppress(GgufError):
                parse_header(cursor)
            assert cursor.reads <= 3  # the file is smaller than two windows


def _edited(edits: list[tuple[int, bytes]]) -> bytes:
    content = bytearray(VALID)
    for position, piece in edits:
        content[position : position + len(piece)] = piece
    return bytes(content)


@settings(max_examples=400, deadline=None)
@given(_edits)
def test_overwritten_bytes_raise_nothing_but_the_one_error(edits: list[tuple[int, bytes]]) -> None:
    _try(_edited(edits))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(VALID)), st.binary(max_size=64))
def test_truncated_and_continued_files_raise_nothing_but_the_one_error(size: int, tail: bytes) -> None:
    _try(VALID[:size] + tail)


@settings(max_examples=100, deadline=None)
@given(st.integers(8, _HEADER), st.integers(0, 40), st.binary(max_size=40))
def test_shifted_files_raise_nothing_but_the_one_error(position: int, removed: int, inserted: bytes) -> None:
    _try(VALID[:position] + inserted + VALID[position + removed :])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_noise_behind_the_magic_raises_nothing_but_the_one_error(noise: bytes) -> None:
    _try(b"GGUF\x03\0\0\0" + noise)
