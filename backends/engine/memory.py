"""What becomes of memory that is freed: given back while a model is loaded, kept for the next step while it is served.

Both are settings of glibc; other C libraries have ways of their own.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE = 1 << 16
_EVERYTHING = 1 << 30


@contextmanager
def loading() -> Iterator[None]:
    """Give freed tensors back at once: what is read of a layer on the way to its weights is large and not needed again.

    Afterwards they are kept: the intermediate results of each step would be given back and cleared anew by the next.
    """
    _set(_LARGE)
    try:
        yield
    finally:
        _set(_EVERYTHING)


def _set(threshold: int) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, threshold)
    mallopt(_M_TRIM_THRESHOLD, threshold)
