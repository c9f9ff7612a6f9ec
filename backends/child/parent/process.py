"""One child process: started with a private session, watched without a thread, never left behind.

Knows processes and file descriptors, nothing of models. The exit is noticed through a pidfd where the kernel has them, else
when the owner calls `poll`. asyncio's own subprocesses are not used: their `wait` also waits for whoever inherited the pipes.
"""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

_READ_BYTES = 65536
_LAST_READS = 16  # more than a pipe holds, and an end where somebody who outlived the child still writes
_REAP_TIMEOUT_S = 1.0
_OOM_SCORE_ABOVE_OURS = 500
_OOM_SCORE_MAX = 1000


class ChildProcess:
    """A running child. Create it on the event loop's own thread: a child that asks to die with its parent dies with the thread.

    Args:
        command: program and arguments.
        on_output: gets what the child writes to standard output and error; the last call has no bytes and `final=True`.
        pass_fds: descriptors that it inherits, under the same numbers, besides input and output.

    Attributes:
        exited: done with the return code (negative: the signal) once the child is gone and reaped.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(self, command: Sequence[str], on_output: Callable[..., None], *, pass_fds: Sequence[int] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_output = on_output
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._output_fd, write_fd = os.pipe()
        try:
            # A session of its own keeps Ctrl-C in the terminal from the child: the gateway drains first, and needs it for that.
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                pass_fds=pass_fds,
                start_new_session=True,
                env={"PYTHONFAULTHANDLER": "1", **os.environ},
            )
        except BaseException:
            os.close(self._output_fd)
            raise
        finally:
            os.close(write_fd)
        self.pid = self._popen.pid
        self._pidfd = _open_pidfd(self.pid)
        os.set_blocking(self._output_fd, False)
        self._loop.add_reader(self._output_fd, self._read_output)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self.poll)
        _make_expendable(self.pid)

    def poll(self) -> None:
        """Notice an exit, where the kernel does not tell of it by itself."""
        code = self._popen.poll()
        if code is not None and not self.exited.done():
            self._close_pidfd()
            self.exited.set_result(code)

    def kill(self) -> None:
        """Kill it with everything that it started, stopped or not. No effect once it is gone."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def dispose(self) -> None:
        """Kill it if it still runs, reap it and close every descriptor. Blocks at most a second, and only if it had to kill."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_REAP_TIMEOUT_S)
        self.poll()
        self._close_pidfd()
        for _ in range(_LAST_READS):
            if self._output_fd < 0 or not self._read_output():
                break
        self._close_output()

    def _read_output(self) -> bool:
        try:
            data = os.read(self._output_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._on_output(data)
        else:
            self._close_output()
        return bool(data)

    def _close_output(self) -> None:
        if self._output_fd >= 0:
            self._loop.remove_reader(self._output_fd)
            os.close(self._output_fd)
            self._output_fd = -1
            self._on_output(b"", final=True)

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


def describe_exit(code: int) -> str:
    """Put a return code into words: `was killed by signal 9 (SIGKILL, out of memory?)`, `exited with status 3`."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"was killed by signal {-code}"
    return f"was killed by signal {-code} ({name}{', out of memory?' if name == 'SIGKILL' else ''})"


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _make_expendable(pid: int) -> None:
    """When memory runs out the kernel shall kill the child, not the gateway; when it crashes, not write its memory to disk."""
    with contextlib.suppress(OSError, ValueError):
        ours = int(Path("/proc/self/oom_score_adj").read_text())
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(min(_OOM_SCORE_MAX, ours + _OOM_SCORE_ABOVE_OURS)))
    with contextlib.suppress(AttributeError, OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
