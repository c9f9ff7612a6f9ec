"""Writes log lines to a stream: records at once, the lines of requests some milliseconds later and many at a time.

One system call for each request is a good part of what its log line costs. All lines go through one buffer, so they appear in
the order in which they came; whatever is logged besides takes what waits with it. `logging` flushes at exit, so nothing is lost
when the process ends by itself.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import TextIO

FLUSH_AFTER_S = 0.05
FLUSH_AT_BYTES = 1 << 16


class LineHandler(logging.Handler):
    """For the root logger. Threads may log; `write_soon` belongs to the event loop.

    Args:
        stream: written to as UTF-8 where it has a binary side. Never closed. Nobody learns when it takes nothing any more.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._write: Callable[[bytes], object] = stream.buffer.write if hasattr(stream, "buffer") else self._write_text
        self._turn = RLock()
        self._waiting: list[bytes] = []
        self._size = 0
        self._timed_by: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, and what waits before it."""
        try:
            line = self.format(record).encode("utf-8", "backslashreplace")
        except Exception:
            self.handleError(record)
            return
        self._add(line)
        self.flush()

    def write_soon(self, line: bytes) -> None:
        """Write a line that is ready, without its end, within 50 ms; at once where no event loop runs."""
        self._add(line)
        if self._size >= FLUSH_AT_BYTES:
            self.flush()
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if loop is not self._timed_by:
            self._timed_by = loop
            loop.call_later(FLUSH_AFTER_S, self._on_time)

    def flush(self) -> None:
        """Write all that waits."""
        with self._turn, suppress(OSError, ValueError):
            data, self._waiting, self._size = b"".join(self._waiting), [], 0
            if data:
                self._write(data)
            self._stream.flush()

    def _add(self, line: bytes) -> None:
        with self._turn:
            self._waiting.append(line + b"\n")
            self._size += len(line) + 1

    def _on_time(self) -> None:
        self._timed_by = None
        self.flush()

    def _write_text(self, data: bytes) -> None:
        self._stream.write(data.decode())
