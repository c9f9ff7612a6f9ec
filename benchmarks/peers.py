"""Builds llama-server from the same source and with the same CPU flags as the llama.cpp inside Baton, once per machine.

So a difference between the two servers is a difference of servers and not of compilers. Kept beside the wheels. Needs `.ci` on
the path, where the wheel is built; `make bench` sees to that. `python -m benchmarks.peers` prints the path of the binary.
"""

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from llama_wheel import VERSION, build_flags, key
from steps import CACHE, PYTHON, Progress, StepError, locked, logged, say
from system import require_compilers

# As the wheel is built, but a program of its own, and without what a loopback benchmark has no use for: TLS and the web page.
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)


def llama_server_path() -> Path:
    """Say where llama-server for this machine is kept, built or not."""
    return CACHE / "peers" / f"llama-server-{key()}" / "llama-server"


def llama_server() -> Path:
    """Return the path of llama-server for this machine, building it when there is none.

    Raises:
        StepError: no compiler, or the build failed.
    """
    binary = llama_server_path()
    home = binary.parent
    with locked(home.with_name(home.name + ".lock"), "building llama-server"):
        if not binary.is_file():
            _build(home)
    return binary


def _build(home: Path) -> None:
    require_compilers()
    say(f"building llama-server for this CPU, once: about 8-15 minutes, kept in {home.parent}")
    for stale in home.parent.glob(f"{home.name}.partial-*"):  # we hold the lock: whoever began these is gone
        shutil.rmtree(stale, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{home.name}.partial-", dir=home.parent))
    try:
        source, build = _source(partial), partial / "build"
        logged(["cmake", "-S", str(source), "-B", str(build), *FLAGS, *(flag for flag in build_flags() if "GGML_" in flag)])
        jobs = str(os.cpu_count() or 1)
        logged(["cmake", "--build", str(build), "--target", "llama-server", "--parallel", jobs], on_line=Progress())
        shutil.rmtree(home, ignore_errors=True)
        (build / "bin").rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _source(folder: Path) -> Path:
    """Download the source archive that the wheel is built from, and unpack llama.cpp out of it."""
    package = ["--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder), f"llama-cpp-python=={VERSION}"]
    logged([str(PYTHON), "-m", "pip", "download", *package])
    archives = list(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        raise StepError(f"pip brought {len(archives)} source archives of llama-cpp-python {VERSION}, one was expected")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("*/vendor/llama.cpp"))


if __name__ == "__main__":
    print(llama_server())
