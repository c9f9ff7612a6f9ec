"""Finds or builds the llama-cpp-python wheel, once per machine and user.

The package index has only its source, and compiling llama.cpp takes minutes, so the wheel is kept outside the checkout. It is
compiled for the CPU at hand, so the place where it is kept names that CPU: a home directory may be shared by unlike machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sysconfig
import tempfile
from pathlib import Path

from steps import CACHE, PYTHON, Progress, StepError, locked, logged, say
from system import require_compilers

VERSION = "0.3.36"
FLAGS = (
    "-DGGML_NATIVE=ON",
    "-DLLAVA_BUILD=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
)
_CPU_FIELDS = ("vendor_id", "cpu family", "model\t", "flags", "CPU implementer", "CPU part", "Features")


def wheel() -> Path:
    """Return the wheel for this machine, downloading or building it when the cache has none.

    Raises:
        StepError: no compiler, or the build failed.
    """
    home = CACHE / "wheels" / key()
    with locked(home.with_name(home.name + ".lock"), "building llama.cpp"):
        if not _wheels(home):
            _fill(home)
        return _wheels(home)[0]


def key() -> str:
    """Name what decides the content of a wheel: version, build flags, CPU and platform."""
    return f"{VERSION}-{sysconfig.get_platform()}-{hashlib.sha256(json.dumps(_identity()).encode()).hexdigest()[:12]}"


def _identity() -> dict[str, object]:
    system = [sysconfig.get_platform(), *platform.libc_ver()]
    return {"version": VERSION, "flags": build_flags(), "cpu": cpu_identity(), "system": system}


def build_flags() -> list[str]:
    """Name the flags llama.cpp is compiled with: ours, and what the user adds in CMAKE_ARGS."""
    # A Jetson adds -DGGML_CUDA=ON this way, as for any other build of llama-cpp-python.
    return [*FLAGS, *os.environ.get("CMAKE_ARGS", "").split()]


def cpu_identity() -> str:
    """Name the CPU by what `-march=native` looks at: its model and its instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(_CPU_FIELDS)}))


def _wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whl"))


def _fill(home: Path) -> None:
    for stale in home.parent.glob(f"{home.name}.partial-*"):  # we hold the lock: whoever began these is gone
        shutil.rmtree(stale, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{home.name}.partial-", dir=home.parent))
    try:
        if "CMAKE_ARGS" in os.environ or not _download(partial):
            _build(partial)
        (partial / "about.json").write_text(json.dumps(_identity(), indent=1))
        shutil.rmtree(home, ignore_errors=True)
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download(into: Path) -> bool:
    command = ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(into), f"llama-cpp-python=={VERSION}"]
    try:
        logged([str(PYTHON), "-m", "pip", *command])
    except StepError:
        return False
    say("found a prebuilt llama-cpp-python wheel")
    return bool(_wheels(into))


def _build(into: Path) -> None:
    require_compilers()
    say(f"building llama.cpp for this CPU, once: about 4-12 minutes, kept in {CACHE / 'wheels'}")
    command = ["wheel", "-v", "--no-deps", "--no-binary", "llama-cpp-python", "--wheel-dir", str(into)]
    scratch = into / "scratch"  # in here, an interrupted build is cleared away with the rest
    scratch.mkdir()
    env = {"CMAKE_ARGS": " ".join(build_flags()), "TMPDIR": str(scratch)}
    logged([str(PYTHON), "-m", "pip", *command, f"llama-cpp-python=={VERSION}"], env=env, on_line=Progress())
    shutil.rmtree(scratch)
    if not _wheels(into):
        raise StepError(f"the build of llama-cpp-python left no wheel in {into}")
