"""Cuts the tokens of a text into windows, each of which is read on its own. Plain Python."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from backends.child.errors import LoadError
from backends.gguf.errors import shown

MIN_WINDOW = 32


@dataclass(frozen=True, slots=True)
class Windows:
    """The parts of a text that are read."""

    name: str
    windows: list[list[int]]

    def sha256(self) -> str:
        """Equal for the same tokens in the same windows: two evaluations with different ones cannot be compared."""
        return hashlib.sha256(repr(self.windows).encode()).hexdigest()


def cut_windows(name: str, tokens: Sequence[int], *, window: int, most: int, bos: int | None) -> Windows:
    """Take windows that do not overlap, evenly spread over a text.

    Args:
        window: tokens of each, `bos` included; a text that fills less than one is one shorter window.
        most: tokens of all windows together, at least one window's.
        bos: what every window begins with, if anything.

    Raises:
        LoadError: the text has too few tokens. The message has its `name`.
    """
    begin = [] if bos is None else [bos]
    size = min(window - len(begin), len(tokens))
    if size + len(begin) < MIN_WINDOW:
        raise LoadError(f"{shown(name)} gives a window of {size + len(begin)} tokens, at least {MIN_WINDOW} are needed")
    count = max(1, min(most // window, len(tokens) // size))
    gap = (len(tokens) - count * size) // max(1, count - 1)
    return Windows(name, [[*begin, *tokens[i * (size + gap) : i * (size + gap) + size]] for i in range(count)])
