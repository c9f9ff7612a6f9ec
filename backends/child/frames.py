"""Messages on a stream socket: four bytes of length, little-endian, then the MessagePack body.

Parent and child share one Unix socket pair: nothing in the file system, and nobody else can connect. It took the place of a
ZeroMQ PAIR socket, whose I/O threads wake once more on either side of every message (edge/NOTES.md has the figures).
"""

from collections.abc import Iterator

MAX_BYTES = 256 * 2**20
_HEAD = 4


class BadFrame(ValueError):
    """The other side announced a message that is larger than any may be."""


def frame(body: bytes) -> bytes:
    """Put the length in front. Raises BadFrame when the body is too large."""
    if len(body) > MAX_BYTES:
        raise BadFrame(f"a message of {len(body)} bytes, at most {MAX_BYTES} may be sent")
    return len(body).to_bytes(_HEAD, "little") + body


class FrameReader:
    """Puts messages together again, however the stream was cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = _HEAD  # bytes that must be there before it is worth looking

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take what was read; yields each complete body. Raises BadFrame."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._wanted:
            return
        start = 0
        while len(buffer) - start >= _HEAD:
            size = int.from_bytes(buffer[start : start + _HEAD], "little")
            if size > MAX_BYTES:
                raise BadFrame(f"a message of {size} bytes, at most {MAX_BYTES} may be sent")
            if len(buffer) - start - _HEAD < size:
                self._wanted = _HEAD + size
                break
            start += _HEAD
            yield bytes(buffer[start : start + size])
            start += size
        else:
            self._wanted = _HEAD
        del buffer[:start]
