"""What an engine child writes to its standard output and error, cut into lines: into the log, and the last ones kept.

The text is not trusted to be short, to be UTF-8 or to be free of terminal escapes: it may quote what strangers wrote.
"""

import codecs
import logging
import re
from collections import deque

logger = logging.getLogger("baton.engine")

MAX_LINE_CHARS = 2000
KEPT_LINES = 20
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class EngineLog:
    """The output of one life of the child of model `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self._dropped = 0
        self._last: deque[str] = deque(maxlen=KEPT_LINES)

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take the next bytes in whatever pieces they come; `final` also ends the last line."""
        *complete, rest = self._decoder.decode(data, final).split("\n")
        for piece in complete:
            self._extend(piece)
            self._end_line()
        self._extend(rest)
        if final:
            self._end_line()

    def tail(self) -> str:
        """The last lines, at most `KEPT_LINES`."""
        return "\n".join(self._last)

    def _extend(self, piece: str) -> None:
        room = MAX_LINE_CHARS - len(self._line)
        self._line += piece[:room]
        self._dropped += max(0, len(piece) - room)

    def _end_line(self) -> None:
        line = _CONTROL.sub("\ufffd", self._line.rstrip())
        if self._dropped:
            line += f" [{self._dropped} more characters]"
        self._line, self._dropped = "", 0
        if line:
            self._last.append(line)
            logger.info("%s: %s", self._name, line)
