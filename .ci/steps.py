"""What every installation step needs: one log, one lock, one stamp, and a cache folder that outlives the checkout.

Knows nothing about what is installed. Standard library only, because it runs before anything else is there.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baton"
LOG = CACHE / "logs" / f"{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}.log"

TAIL_LINES = 30
# pip repeats these for every configured index that lacks a package: noise in a message about what went wrong.
NOISE = re.compile(r"is ignored: it is neither a file nor a directory|^Looking in |Running pip as the 'root' user|^\s*$")


class StepError(Exception):
    """A step cannot go on; the text is for the user, complete with what to do."""


def say(text: str) -> None:
    """Print one line of progress."""
    sys.stdout.write(f"baton: {text}\n")
    sys.stdout.flush()


def logged(command: list[str], env: Mapping[str, str] | None = None, on_line: Callable[[str], None] | None = None) -> None:
    """Run a command quietly; its whole output goes to the log.

    Args:
        env: added to the environment.
        on_line: sees every line of output, to report progress.
    Raises:
        StepError: it failed; the text holds the end of its output.
    """
    LOG.parent.mkdir(parents=True, exist_ok=True)
    tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    with LOG.open("a", encoding="utf-8") as log, _started(command, env or {}) as process:
        log.write(f"\n$ {' '.join(command)}\n")
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            if not NOISE.search(line):
                tail.append(line)
            if on_line:
                on_line(line)
    if process.returncode:
        raise StepError(f"{''.join(tail)}\n`{' '.join(command)}` failed with status {process.returncode}; whole log: {LOG}")


@contextlib.contextmanager
def _started(command: list[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    # Its own session, so that an interrupt ends the compilers under pip as well and not only pip.
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            yield process
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise


def once(name: str, inputs: Iterable[object], result: Path, action: Callable[[], None]) -> None:
    """Do `action` unless it has already succeeded in this environment with equal `inputs` and `result` is still there."""
    stamp = VENV / f".{name}.stamp"
    digest = hashlib.sha256("\0".join(map(str, inputs)).encode()).hexdigest()
    if result.exists() and stamp.is_file() and stamp.read_text() == digest:
        return
    stamp.unlink(missing_ok=True)
    action()
    partial = stamp.with_suffix(".partial")
    partial.write_text(digest)
    partial.replace(stamp)


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`, telling the user when it means waiting. The system releases it if we are killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another make is {what}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Progress:
    """Turns the `[done/total]` of ninja and the `[ 40%]` of make into a line of progress every 20 %."""

    def __init__(self) -> None:
        self._next = 20
        self._began = time.monotonic()

    def __call__(self, line: str) -> None:
        """Look at one line of output."""
        match = re.match(r"\s*\[\s*(\d+)(?:/(\d+)|%)\]", line)
        if match and 100 * int(match[1]) >= self._next * int(match[2] or 100):
            say(f"  {self._next} % after {time.monotonic() - self._began:.0f} s")
            self._next += 20
