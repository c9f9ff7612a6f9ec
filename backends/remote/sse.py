"""Server-sent events as bytes: where one ends, and what it says.

Lines end with LF, CRLF or CR and with nothing else: U+2028 and the like are text. Works on bytes, so that a character may be
cut anywhere. Comments, `id:` and `retry:` say nothing about an answer and are left out.
Source: WHATWG HTML, section 9.2.6, "Interpreting an event stream".
"""

import re
from typing import NamedTuple

from backends.remote.errors import protocol_error

DONE = b"data: [DONE]\n\n"

# CRLF is one line end, so a CR with a LF behind it must not be taken for two. Where the LF of a CRLF comes too late to be seen,
# it stands before the next event as an empty line, which says nothing.
_BLANK_LINE = re.compile(rb"\r\n(?:\r\n|\n|\r)|\n(?:\r\n|\n|\r)|\r(?!\n)(?:\r\n|\r)")
_LONGEST_BLANK_LINE = 4
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """The data lines of an event, joined, and its name; the name is empty for plain messages."""

    data: bytes
    name: bytes


class EventSplitter:
    """Cuts a stream into events, however it was cut into pieces before.

    Args:
        max_bytes: what may wait for the end of its event, beside the last piece.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._scanned = 0
        self._at_start = True

    def plain(self, piece: bytes) -> bytes:
        """Take a piece that needs no cutting: whole events of one JSON object each, in the plainest form there is.

        Returns the piece as it is, or `b""` and takes nothing, when it is anything else or begins inside an event.
        """
        if self._buffer or not piece.startswith(b"data: {") or not piece.endswith(b"}\n\n"):
            return b""
        # JSON has no raw line ends, so two per event, all in their places, leave no room for another line.
        if piece.count(b"\n") != 2 * piece.count(b"}\n\ndata: {") + 2 or b"\r" in piece:
            return b""
        self._at_start = False
        return piece

    def push(self, piece: bytes) -> list[Event]:
        """Take any piece; return the events that it completes.

        Raises:
            Failed: an event is longer than `max_bytes`.
        """
        buffer = self._buffer
        buffer += piece
        events: list[Event] = []
        start = 0
        scan = max(0, self._scanned - _LONGEST_BLANK_LINE + 1)
        while found := _BLANK_LINE.search(buffer, scan):
            if (event := self._read(bytes(buffer[start : found.start()]))) is not None:
                events.append(event)
            start = scan = found.end()
        del buffer[:start]
        self._scanned = len(buffer)
        # What is complete must not be lost with what is too long.
        if not events and len(buffer) > self._max_bytes:
            raise protocol_error(f"An event of the upstream server is longer than {self._max_bytes} bytes.")
        return events

    def finish(self) -> list[Event]:
        """The stream ended: what has no blank line behind it counts as an event too, because some servers forget it."""
        event = self._read(bytes(self._buffer))
        self._buffer.clear()
        self._scanned = 0
        return [] if event is None else [event]

    def _read(self, text: bytes) -> Event | None:
        if self._at_start:
            self._at_start = False
            text = text.removeprefix(_BOM)
        name = b""
        data: list[bytes] = []
        for line in text.splitlines():
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ")
        joined = b"\n".join(data)
        return Event(joined, name) if joined else None
