"""Splits a byte stream of server-sent events into the data of its events, however the network cut it.

Works on bytes: text decoders that split lines would also split at U+2028 inside a JSON string. Source: WHATWG HTML,
"Interpreting an event stream".
"""

import re
from collections.abc import Iterator

# A carriage return at the very end may be half of a line end.
_END_OF_LINE = re.compile(rb"\r\n|\n|\r(?!\Z)")


class EventLines:
    """Holds at most one unfinished event.

    Args:
        max_bytes: the most that one event may have.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, received: bytes) -> Iterator[bytes]:
        """Take in the next bytes, and return the data of every event that is complete now; comments are dropped.

        Raises:
            ValueError: an event is too long.
        """
        *lines, self._rest = _END_OF_LINE.split(self._rest + received)
        for line in lines:
            if not line:
                if self._data:
                    yield b"\n".join(self._data)
                self._data, self._size = [], 0
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
        self._check()

    def _check(self) -> None:
        if self._size + len(self._rest) > self._max_bytes:
            raise ValueError(f"an event has more than {self._max_bytes} bytes")
