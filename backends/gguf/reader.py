"""A cursor over the header of an open file that reads little, and only after asking whether it may.

Every length is compared with the bytes that are left in the file and with the limits *before* anything is read or allocated.
The file is read by `os.pread` in pieces of 256 KiB, never as a whole and never through `mmap` (a file that shrinks under a
mapping kills the process). The cursor knows little-endian numbers and GGUF strings, not what they mean.
"""

import os
import struct
import sys
import time
from array import array
from collections.abc import Callable

from backends.gguf.errors import GgufError
from backends.gguf.limits import Limits

_CHUNK_BYTES = 256 * 1024
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """Where we are in the header. `reads` counts system calls, so that a test can bound them.

    Args:
        fd: an open regular file; stays the caller's.
        size: its size in bytes when it was opened.
        limits: what the header may ask for.
        deadline: when to give up, on `clock`'s scale in seconds.
        clock: what time it is in seconds.
    """

    def __init__(
        self, fd: int, size: int, limits: Limits, deadline: float = float("inf"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self.size = size
        self.reads = 0
        self._fd = fd
        self._deadline = deadline
        self._clock = clock
        self._strings_left = limits.strings
        self._window = b""
        self._base = 0  # where the window starts in the file
        self._pos = 0  # where we are in the window

    @property
    def position(self) -> int:
        """Offset in the file of the next byte."""
        return self._base + self._pos

    @property
    def remaining(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.position

    def u32(self, field: str) -> int:
        """Read an unsigned 32-bit number."""
        value: int = _U32.unpack(self.take(4, field))[0]
        return value

    def u64(self, field: str) -> int:
        """Read an unsigned 64-bit number."""
        value: int = _U64.unpack(self.take(8, field))[0]
        return value

    def take(self, count: int, field: str) -> bytes:
        """Read `count` bytes. Raises `GgufError` when they are not there, too many, or too late."""
        if self._pos + count > len(self._window):
            self._fill(count, field)
        start, self._pos = self._pos, self._pos + count
        return self._window[start : self._pos]

    def skip(self, count: int, field: str) -> None:
        """Go on by `count` bytes without reading them; they count towards the limits all the same."""
        self._admit(count, field)
        if self._pos + count <= len(self._window):
            self._pos += count
        else:
            self._base, self._window, self._pos = self.position + count, b"", 0

    def string(self, field: str, limit: int, what: str = "string") -> str:
        """Read a length-prefixed string of at most `limit` bytes of UTF-8."""
        length = self.u64(field)
        if length > limit:
            raise GgufError(f"{field}: {what} length {length:,} is above the limit of {limit:,} bytes")
        raw = self.take(length, field)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise GgufError(f"{field}: {what} is not valid UTF-8") from None

    def numbers(self, code: str, size: int, count: int, field: str) -> "array[int] | array[float]":
        """Read `count` numbers of `size` bytes as an `array` of type `code`."""
        values = array(code)
        assert values.itemsize == size
        values.frombytes(self.take(count * size, field))
        if sys.byteorder == "big":
            values.byteswap()
        return values

    def strings(self, count: int, field: str) -> tuple[str, ...]:
        """Read `count` strings."""
        return tuple(self._walk_strings(count, field, keep=True))

    def skip_strings(self, count: int, field: str) -> None:
        """Go past `count` strings: bounds are checked, the text is not looked at."""
        self._walk_strings(count, field, keep=False)

    def _walk_strings(self, count: int, field: str, *, keep: bool) -> list[str]:
        # One pass per window, with everything in local names: a vocabulary has hundreds of thousands of strings.
        if count > self._strings_left:
            limit = self.limits.strings
            raise GgufError(f"{field}: {count:,} more strings are above the limit of {limit:,} strings in all arrays together")
        self._strings_left -= count
        limit, length_at, texts, left = self.limits.string_bytes, _U64.unpack_from, list[str](), count
        try:
            while left:
                window, pos, need = self._window, self._pos, 8
                end = len(window)
                while left and pos + 8 <= end:
                    (length,) = length_at(window, pos)
                    stop = pos + 8 + length
                    if length > limit:
                        raise GgufError(
                            f"{field}[{count - left}]: string length {length:,} is above the limit of {limit:,} bytes"
                        )
                    if stop > end:
                        need = 8 + length
                        break
                    if keep:
                        texts.append(window[pos + 8 : stop].decode())
                    pos = stop
                    left -= 1
                self._pos = pos
                if left:
                    self._fill(need, f"{field}[{count - left}]")
        except UnicodeDecodeError:
            raise GgufError(f"{field}[{len(texts)}]: string is not valid UTF-8") from None
        return texts

    def _admit(self, count: int, field: str) -> None:
        if count > self.remaining:
            raise GgufError(
                f"{field}: {count:,} bytes are needed at offset {self.position:,}, but only {self.remaining:,} follow"
            )
        cap = self.limits.metadata_bytes
        if self.position + count > cap:
            raise GgufError(f"{field}: header needs {self.position + count:,} bytes, above the limit of {cap:,} bytes")
        if self._clock() > self._deadline:
            raise GgufError(f"{field}: reading the header took longer than the limit of {self.limits.seconds:g} s")

    def _fill(self, count: int, field: str) -> None:
        """Make the window start here and hold at least `count` bytes."""
        self._admit(count, field)
        start = self.position
        want = min(max(count, _CHUNK_BYTES), self.size - start, self.limits.metadata_bytes - start)
        pieces, got = [], 0
        while got < want:
            try:
                piece = os.pread(self._fd, want - got, start + got)
            except OSError as error:
                raise GgufError(f"{field}: cannot read at offset {start + got:,}: {error.strerror}") from error
            self.reads += 1
            if not piece:
                raise GgufError(f"{field}: file ends at {start + got:,} bytes although it had {self.size:,} when it was opened")
            pieces.append(piece)
            got += len(piece)
        self._base, self._window, self._pos = start, b"".join(pieces), 0
