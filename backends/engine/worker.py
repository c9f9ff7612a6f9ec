"""The torch engine's child: `python -m backends.engine.worker`. Started by `backends.engine.backend`, one per loaded model."""

import ctypes

from backends.child.worker import run
from backends.engine.config import EngineConfig

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP_BYTES = 1 << 30


def _keep_freed_memory() -> None:
    """Let glibc reuse the memory of intermediate results instead of giving it back and clearing it anew at each step."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
    except (OSError, AttributeError):
        pass  # another C library has its own ways


if __name__ == "__main__":
    _keep_freed_memory()
    from backends.engine.service import Service

    run(EngineConfig, Service)
