"""Runs a load generator in a process of its own, so that what it takes is neither ours nor the server's."""

import shlex
import subprocess
import sys
from typing import Any

import msgspec

from benchmarks.servers import BenchmarkError


def generate(module: str, url: str, arguments: list[str], timeout_s: float) -> dict[str, Any]:
    """Run `python -m benchmarks.MODULE URL ARGUMENTS` and read the line of JSON that it prints.

    Raises:
        BenchmarkError: a request failed, or it took too long: a number about failures would be no comparison.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", url, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"`{shlex.join(command)}` was not done after {timeout_s:.0f} s") from None
    if done.returncode:
        raise BenchmarkError(f"`{shlex.join(command)}` failed:\n{done.stdout}{done.stderr[-2000:]}")
    figures: dict[str, Any] = msgspec.json.decode(done.stdout)
    return figures
