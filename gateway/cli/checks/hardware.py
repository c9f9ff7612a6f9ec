"""CPU, memory and limits, as this process may use them: inside a container that is less than the machine has.

Source: proc(5), and the Linux kernel's cgroup-v2 documentation (`cpu.max`, `memory.max`, `memory.current`).
"""

import os
import platform
import resource
from pathlib import Path

from gateway.cli.checks.finding import Finding

_CGROUP = Path("/sys/fs/cgroup")
_SHOWN_FLAGS = (
    *("avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)
_MIN_FILES = 1024
_GIB = 1 << 30


def cpu_flags() -> frozenset[str]:
    """Read what the CPU can do; empty where /proc does not say."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def check_cpu(flags: frozenset[str]) -> Finding:
    """Has the CPU the vector instructions that make llama.cpp usable?"""
    machine = platform.machine()
    text = f"{machine}: {' '.join(flag for flag in _SHOWN_FLAGS if flag in flags) or 'flags unknown'}"
    if machine in ("x86_64", "AMD64") and flags and "avx2" not in flags:
        return Finding(
            "warn", "cpu", text, "without AVX2 generation is several times slower; use another machine for larger models"
        )
    return Finding("ok", "cpu", text)


def check_cores() -> Finding:
    """How many cores may be used, and does a quota cut them?"""
    cores = len(os.sched_getaffinity(0))
    quota, _, period = _read(_CGROUP / "cpu.max").strip().partition(" ")
    if not quota.isdecimal() or not period.isdecimal():
        return Finding("ok", "cores", f"{cores}, no quota")
    allowed = int(quota) / int(period)
    if allowed < cores:
        fix = f"set threads = {max(1, int(allowed))} for each GGUF model: more threads than quota make every step wait"
        return Finding("warn", "cores", f"{cores}, but a quota of {allowed:g}", fix)
    return Finding("ok", "cores", f"{cores}, quota {allowed:g}")


def available_bytes() -> int | None:
    """How much memory can still be taken, in bytes; None where /proc does not say."""
    candidates = []
    for line in _read(Path("/proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            candidates.append(int(value.split()[0]) * 1024)
    limit, used = (_read(_CGROUP / name).strip() for name in ("memory.max", "memory.current"))
    if limit.isdecimal() and used.isdecimal():
        candidates.append(int(limit) - int(used))
    return min(candidates, default=None)


def check_memory(needed_bytes: int) -> Finding:
    """Is there room for model files of `needed_bytes` together, and a quarter more for caches and buffers?"""
    available = available_bytes()
    if available is None:
        return Finding("warn", "memory", "unknown here")
    text = f"{available / _GIB:.1f} GiB available, the models' files have {needed_bytes / _GIB:.1f} GiB"
    if available < needed_bytes:
        return Finding("fail", "memory", text, "use a smaller model or a stronger quantization, or free memory")
    if available < needed_bytes * 1.25:
        return Finding("warn", "memory", text, "set a smaller context or fewer slots")
    return Finding("ok", "memory", text)


def check_limits() -> Finding:
    """May the process open enough files? Each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{_limit(soft)} open files (at most {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < _MIN_FILES:
        return Finding("warn", "limits", text, f"ulimit -n {_MIN_FILES} or more: every connection is an open file")
    return Finding("ok", "limits", text)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
