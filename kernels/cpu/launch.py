"""Running a compiled kernel on torch's OpenMP threads, for about a microsecond a launch.

A kernel is a `numba.cfunc` that gets one pointer to 64-bit integers: addresses, sizes, and the bits of floats. Every thread
of the team runs it and takes its own part by `thread()` and the number of threads. numba's own thread pools are not used: two
pools that spin on the same cores slow each other down, and torch's is there anyway, because torch does the matrix products.
`GOMP_parallel` is what compilers emit for `#pragma omp parallel` (libgomp ABI); where torch brings no libgomp, kernels run on
the calling thread.
"""

import ctypes
import hashlib
import os
import struct
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import torch
from numba import types

ENTRY = types.void(types.CPointer(types.int64))
"""The signature of every kernel."""

_ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_ONLY_THREAD, _NO_BARRIER = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0), ctypes.CFUNCTYPE(None)(lambda: None)
_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")


def _parallel() -> Any:
    """Make known to LLVM what kernels call, and return `GOMP_parallel`, or None where there is no libgomp."""
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    if not found:
        for name, callback in {"omp_get_thread_num": _ONLY_THREAD, "GOMP_barrier": _NO_BARRIER}.items():
            llvmlite.binding.add_symbol(name, ctypes.cast(callback, ctypes.c_void_p).value)
        return None
    llvmlite.binding.load_library_permanently(str(found[0]))
    parallel = ctypes.CDLL(str(found[0])).GOMP_parallel
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


_PARALLEL = _parallel()

thread = types.ExternalFunction("omp_get_thread_num", types.int32())
"""Inside a kernel: the number of the calling thread within its team."""

barrier = types.ExternalFunction("GOMP_barrier", types.void())
"""Inside a kernel: wait for the whole team."""


# `reassoc` lets sums be vectorised; infinities and NaNs keep their meaning (masks are infinite).
_FLAGS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    "boundscheck": False,
}

device = numba.njit(**_FLAGS)
"""Compile a function that kernels call; numba makes one for every combination of argument types."""

inlined = numba.njit(inline="always")
"""Put a function into those that call it before they are compiled: what it calls is not compiled once more on its own."""


@cache
def _keeps_machine_code() -> bool:
    """Give numba a folder for exactly these sources: it looks for changes in a kernel's own file, not in what that calls.

    The folder is in `NUMBA_CACHE_DIR`, else in the user's cache; says whether it can be written.
    """
    sources = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(file.read_bytes())
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baton" / "kernels"
    folder = Path(numba.config.CACHE_DIR or users) / sources.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    numba.config.CACHE_DIR = str(folder)
    return os.access(folder, os.W_OK)


class Kernel:
    """A function that is compiled when it is first needed, or loaded from the cache on disk."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self._function = function

    @cached_property
    def _compiled(self) -> Any:
        return numba.cfunc(ENTRY, cache=_keeps_machine_code(), **_FLAGS)(self._function)

    @cached_property
    def address(self) -> int:
        """Where the machine code is."""
        return int(self._compiled.address)

    @cached_property
    def run(self) -> Callable[[int], None]:
        """Run it on the calling thread, with arguments at this address. The GIL is free meanwhile."""
        return _ENTRY_TYPE(self.address)


kernel = Kernel
"""Decorate a function of one pointer to int64."""


class Launch:
    """A kernel with its arguments: bound once, run many times, single arguments replaced in between.

    Args:
        kernel: what to run.
        arguments: integers, floats (passed as the bits of a double), or tensors (their addresses; they are kept alive).
        threads: the size of the team; the kernel finds it as its first argument.
    """

    __slots__ = ("_address", "_kept", "_kernel", "_run", "_threads", "arguments")

    def __init__(self, kernel: Kernel, *arguments: int | float | torch.Tensor | None, threads: int) -> None:
        self._threads = threads if _PARALLEL is not None else 1
        self._kept = arguments
        self.arguments: Any = (ctypes.c_int64 * (len(arguments) + 1))()
        self.arguments[:] = [self._threads, *map(encoded, arguments)]
        self._address = ctypes.addressof(self.arguments)
        self._run, self._kernel = kernel.run, kernel.address

    def set(self, index: int, value: int | float | torch.Tensor | None) -> None:
        """Replace argument `index` (the team's size is argument 0). The caller keeps a tensor alive."""
        self.arguments[index] = encoded(value)

    def __call__(self) -> None:
        """Run on all threads and return when the last has finished. The GIL is free meanwhile."""
        if self._threads == 1:
            self._run(self._address)
        else:
            _PARALLEL(self._kernel, self._address, self._threads, 0)


def encoded(value: int | float | torch.Tensor | None) -> int:
    """A kernel argument as 64 bits."""
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(_LONG.unpack(_DOUBLE.pack(value))[0])
    return 0 if value is None else value.data_ptr()
