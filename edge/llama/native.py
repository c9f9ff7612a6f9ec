"""llama.cpp's library: start-up, its log, and the few names of its C enums that we use.

Everything native goes through `llama_cpp.llama_cpp`, the ctypes layer of llama-cpp-python (0.3.36): each call releases the
GIL. Structs are made by the library's own `*_default_params()` and only known fields are changed, because binding and library
must agree on their layout.
"""

import ctypes
import logging
from collections import deque
from typing import Any

from llama_cpp import llama_cpp as _lib

log = logging.getLogger("baton.llama")

lib: Any = _lib  # ctypes structs and functions: their types are built at run time

KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
_ERROR = 4
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}

_complaints: deque[str] = deque(maxlen=3)
_callbacks: list[Any] = []  # ctypes callbacks must outlive the library's use of them


def start() -> None:
    """Initialise the library once per process and send its log to ours."""

    @lib.llama_log_callback  # type: ignore[untyped-decorator]
    def write(level: int, text: bytes, _: ctypes.c_void_p) -> None:
        line = text.decode("utf-8", "replace").strip()
        if line and line.strip("."):
            log.log(_LEVELS.get(level, logging.DEBUG), line)
            if level == _ERROR:
                _complaints.append(line)

    _callbacks.append(write)
    lib.llama_log_set(write, None)
    lib.llama_backend_init()


def complaints() -> str:
    """The last errors that the library logged: why something came back as NULL."""
    return "; ".join(_complaints)[-600:] or "it gave no reason"


def uses_gpu(layers: int) -> bool:
    """Whether a model loaded with this `gpu_layers` setting computes on a GPU: the build must have one."""
    return layers != 0 and bool(lib.llama_supports_gpu_offload())


def build_features() -> str:
    """Describe what the library was built for (instruction sets, back ends)."""
    return str(lib.llama_print_system_info().decode())
