"""How many threads this process may really use: cores, affinity and the cgroup's quota together.

llama.cpp with more threads than the quota allows is dozens of times slower than with the right number, because its threads
spin at barriers while the kernel holds one of them back (measured by others at 45 times for 8 threads under a quota of 4).
"""

import os
from pathlib import Path

import psutil


def usable_threads(root: Path = Path("/")) -> int:
    """Physical cores, bounded by the affinity mask and by the CPU quota (rounded up); at least 1. `root` is for tests."""
    logical = os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    # An affinity mask may name hyper-threads of the same core; it does not say which, so the bound is the smaller count.
    return max(1, min(physical, allowed, _quota(root) or logical))


def _quota(root: Path) -> int | None:
    """CPUs that the cgroup grants, or None without a quota. Reads cgroup v2, then v1."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else -(-int(quota) // int(period))
    except (OSError, ValueError):
        pass
    try:
        quota_us = int((root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int((root / "sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return -(-quota_us // period_us) if quota_us > 0 else None
