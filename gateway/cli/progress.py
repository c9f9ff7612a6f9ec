"""How far a long command is: one line that changes on a terminal, a line for every tenth of the work elsewhere."""

import shutil
from typing import TextIO

_BAR = 24


class ProgressLine:
    """Written to stderr as a rule, so that results can be piped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._terminal = stream, stream.isatty()
        self._tenths = -1

    def show(self, done: int, total: int, what: str) -> None:
        """Say what is being done, and that `done` of `total` is done already."""
        part = done / total
        if self._terminal:
            filled = int(part * _BAR)
            line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {part:4.0%}  {what}"
            self._stream.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        elif int(10 * part) > self._tenths:
            self._tenths = int(10 * part)
            self._stream.write(f"{part:.0%}  {what}\n")
        self._stream.flush()

    def close(self) -> None:
        """Leave an empty line to whatever is written next."""
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
