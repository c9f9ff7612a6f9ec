"""What one rendering of a template may cost: CPU time, characters and elements made.

Counting happens where a template can make work: loop turns, calls, filters, operators and output (see `template_sandbox`). That
is cheap and the same in every thread and Python version, unlike signals (main thread only) or `sys.settrace` (slow, and one per
thread). CPU time of the thread is what counts, so a busy or stopped machine fails nobody. Knows nothing of Jinja.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

MAX_CPU_S = 1.0
MAX_CHARS = 4 << 20
"""Of one string, and so of the output."""
MAX_TOTAL_CHARS = 64 << 20
"""Of all strings made while rendering, kept or not: what bounds memory."""
MAX_LENGTH = 100_000
"""Elements of one list or dict."""
MAX_ELEMENTS = 1_000_000
"""Of a list or dict with all that is inside, counted as often as it is referred to."""
MAX_INT_BITS = 4096

_CLOCK_EVERY = 64
_CHARS_PER_UNIT = 4096
_ELEMENTS_PER_UNIT = 32


class TemplateLimit(Exception):
    """A template would cost more than it may. The text names the limit."""


class Budget:
    """The account of one rendering. Every method raises `TemplateLimit` when it is overdrawn."""

    __slots__ = ("_chars", "_check_at", "_deadline_s", "_units")

    def __init__(self) -> None:
        self._units = self._chars = 0
        self._check_at = _CLOCK_EVERY
        self._deadline_s = time.thread_time() + MAX_CPU_S

    def step(self, units: int = 1) -> None:
        """Pay for work; a unit is roughly a microsecond, and the clock is read every now and then."""
        self._units += units
        if self._units >= self._check_at:
            self._check_at = self._units + _CLOCK_EVERY
            if time.thread_time() > self._deadline_s:
                raise TemplateLimit(f"it runs longer than {MAX_CPU_S:g} s of CPU time")

    def chars(self, count: int) -> None:
        """Pay for a string of `count` characters before it is made."""
        self._chars += count
        if count > MAX_CHARS:
            raise TemplateLimit(f"it makes a string of {count} characters, at most {MAX_CHARS} are allowed")
        if self._chars > MAX_TOTAL_CHARS:
            raise TemplateLimit(f"it makes more than {MAX_TOTAL_CHARS} characters in all")
        if count > _CHARS_PER_UNIT:
            self.step(count // _CHARS_PER_UNIT)

    def printed(self, value: object) -> int:
        """Pay for printing a value; return about how many characters that is."""
        size = len(value) if isinstance(value, str) else self.measured(value)
        self.chars(size)
        return size

    def measured(self, value: object) -> int:
        """Check a value and all inside it, without recursion; return about how many characters printing it takes."""
        if isinstance(value, int):
            check_int(value.bit_length())
        stack: list[object] = [value]
        elements = size = 0
        while stack:
            item = stack.pop()
            size += 4 + len(item) if isinstance(item, str) else 8
            if isinstance(item, (list, tuple, dict)):
                check_length(len(item))
                elements += len(item)
                if elements > MAX_ELEMENTS:
                    raise TemplateLimit(f"it makes a value of more than {MAX_ELEMENTS} elements")
                stack.extend(item)
                if isinstance(item, dict):
                    stack.extend(item.values())
        self.step(elements // _ELEMENTS_PER_UNIT)
        return size


def check_int(bits: int) -> None:
    """Raise `TemplateLimit` for an integer of more than `MAX_INT_BITS` bits."""
    if bits > MAX_INT_BITS:
        raise TemplateLimit(f"it computes a number of {bits} bits, at most {MAX_INT_BITS} are allowed")


def check_length(count: int) -> None:
    """Raise `TemplateLimit` for a list of more than `MAX_LENGTH` elements."""
    if count > MAX_LENGTH:
        raise TemplateLimit(f"it makes a list of {count} elements, at most {MAX_LENGTH} are allowed")


class _Current(threading.local):
    budget: Budget | None = None


_current = _Current()


def current() -> Budget:
    """The budget of the rendering or compilation that this thread is in."""
    budget = _current.budget
    assert budget is not None, "template code ran outside of `spending`"
    return budget


@contextmanager
def spending() -> Iterator[Budget]:
    """Open a fresh budget for this thread; an outer one continues afterwards."""
    before, _current.budget = _current.budget, Budget()
    try:
        yield _current.budget
    finally:
        _current.budget = before
