"""The parent of several workers: starts them, starts another where one dies, passes signals on, and serves nothing itself.

Workers are forked, because then they share the memory of all that is loaded, and a new one is there at once; so nothing in here
may use threads or an event loop. Each has its own listening socket, which stays open in the parent: connections that come while
a worker is replaced wait for the next one.

A worker that ends before it was ever ready, or one that crashes too often, ends the gateway: whoever started it must know.
"""

import asyncio
import gc
import logging
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

import uvloop

from gateway.config import Settings
from gateway.config_sources.reader import ConfigError
from gateway.peers import Peers
from gateway.process import Load, ServingProcess, say
from gateway.reload import plan_reload
from gateway.routing.check import public_names
from gateway.services import build_services
from gateway.worker_channel import DRAINED, END, READY, RELOAD, RELOADED, STOP, Orders, Reports, describe_exit, open_channel

logger = logging.getLogger(__name__)

MAX_CRASHES = 5
CRASH_WINDOW_S = 60.0
_DELAYS_S = (0.0, 0.5, 1.0, 2.0)
_MAX_FOLDER_BYTES = 96
"""Linux allows the paths of sockets 107 bytes."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Crashes:
    """The recent crashes of one worker."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def delay_s(self, now: float) -> float | None:
        """Record a crash at `now` (monotonic seconds); say how long to wait before the next start, None to give up."""
        self._times = [time for time in self._times if now - time < CRASH_WINDOW_S]
        self._times.append(now)
        return None if len(self._times) >= MAX_CRASHES else _DELAYS_S[len(self._times) - 1]


class _Worker:
    """One place, and the process that has it. `pid` is 0 where none runs; then one is started at `start_at`."""

    def __init__(self, index: int, listener: socket.socket) -> None:
        self.index, self.listener = index, listener
        self.crashes = Crashes()
        self.pid = 0
        self.start_at = 0.0
        self.reports: Reports | None = None
        self.summary = ""
        self.has_drained = False


class Workers:
    """As many as there are listeners.

    Args:
        load: reads the configuration again, for reloads.
        url: of the gateway, for people.
        clock: monotonic seconds.

    Raises:
        ConfigError: there is no place for sockets.
    """

    def __init__(
        self,
        settings: Settings,
        load: Load,
        listeners: list[socket.socket],
        url: str,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._folder = _make_folder()
        self._settings, self._load, self._url, self._clock = settings, load, url, clock
        self._workers = [_Worker(index, listener) for index, listener in enumerate(listeners)]
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._stops = 0
        self._is_ready = False
        self._code = 0

    def run(self) -> int:
        """Serve until a signal comes, and return the exit code: 0 when all workers ended well, else 1."""
        try:
            if not _can_be_built(self._settings):
                return 1
            names = public_names(self._settings.routes, self._settings.models)
            say(f"Baton listens on {self._url} and loads {', '.join(names)} in {len(self._workers)} workers")
            self._catch_signals()
            while self._stops == 0 or any(worker.pid for worker in self._workers):
                self._start_due()
                for key, _ in self._selector.select(self._next_start_s()):
                    if key.data is None:
                        self._on_signals()
                    else:
                        self._hear(key.data)
        finally:
            for worker in self._workers:
                if worker.pid:
                    os.kill(worker.pid, signal.SIGKILL)
                    self._reap(worker)
            signal.set_wakeup_fd(-1)
            self._selector.close()
            self._wake.close()
            self._woken.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._code

    def _catch_signals(self) -> None:
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)

    def _on_signals(self) -> None:
        with suppress(BlockingIOError):
            for number in self._woken.recv(64):
                if number == signal.SIGHUP:
                    self._reload()
                else:
                    self._stop()

    def _stop(self) -> None:
        self._stops += 1
        for worker in self._workers:
            if worker.reports is None:
                continue
            if self._stops < 3:
                worker.reports.order(STOP)
            else:
                self._code = 1
                os.kill(worker.pid, signal.SIGKILL)

    def _reload(self) -> None:
        try:
            self._load()
        except ConfigError as error:
            for line in error.errors:
                logger.error("the configuration was not reloaded: %s", line)
            return
        for worker in self._workers:
            if worker.reports is not None:
                worker.reports.order(RELOAD)

    def _follow(self) -> None:
        """A worker has reloaded: later ones begin with the same."""
        try:
            self._settings = plan_reload(self._settings, self._load()).settings
        except ConfigError:
            logger.warning("the configuration has changed again, for the worse: a new worker would not have it")

    def _next_start_s(self) -> float | None:
        due = [worker.start_at for worker in self._workers if not worker.pid]
        return max(0.0, min(due) - self._clock()) if due and not self._stops else None

    def _start_due(self) -> None:
        for worker in self._workers:
            if not worker.pid and not self._stops and self._clock() >= worker.start_at:
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        worker.reports, theirs = open_channel()
        # What is garbage now would be copied into every worker's memory later.
        gc.collect()
        gc.freeze()
        worker.pid = _fork(lambda: self._become(worker, theirs))
        theirs.close()
        worker.summary = ""
        self._selector.register(worker.reports.connection, selectors.EVENT_READ, worker)

    def _become(self, worker: _Worker, channel: socket.socket) -> int:
        """Run as this worker, in its own process."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        self._selector.close()
        for end in (self._wake, self._woken):
            end.close()
        for other in self._workers:
            if other.reports is not None:
                other.reports.connection.close()
            if other is not worker:
                other.listener.close()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._serve(worker, channel))

    async def _serve(self, worker: _Worker, channel: socket.socket) -> int:
        peers = Peers(self._folder, worker.index, len(self._workers))
        watcher = _Reporter()
        process = ServingProcess(self._settings, worker.listener, self._load, watcher, peers)
        watcher.orders = Orders(channel, process.stop, process.reload)
        watcher.orders.follow()
        try:
            return await process.run()
        finally:
            if watcher.orders.is_orphan:
                # Nobody else is left to do it; workers that still run need it no more.
                shutil.rmtree(self._folder, ignore_errors=True)

    def _hear(self, worker: _Worker) -> None:
        assert worker.reports is not None
        lines = worker.reports.read()
        if lines is None:
            self._on_exit(worker)
            return
        for line in lines:
            if line.startswith(READY):
                worker.summary = line.removeprefix(READY)
            elif line == RELOADED:
                self._follow()
            elif line == DRAINED:
                worker.has_drained = True
                self._end_if_drained()
        if not self._is_ready and all(other.summary for other in self._workers):
            self._is_ready = True
            say(f"Baton is ready: {self._url}  ({self._workers[0].summary}; {len(self._workers)} workers)")

    def _on_exit(self, worker: _Worker) -> None:
        status = self._reap(worker)
        if self._stops:
            self._code = self._code or int(status != 0)
            self._end_if_drained()
            return
        what = f"worker {worker.index} {describe_exit(status)}"
        # Before the gateway was ever ready, another try would most likely end the same way.
        may_restart = self._is_ready or bool(worker.summary)
        delay_s = worker.crashes.delay_s(self._clock()) if may_restart else None
        if delay_s is None:
            say(f"baton: {what}, {'too often' if may_restart else 'before it was ready'}: the gateway ends", sys.stderr)
            self._stop()
            self._code = 1
        else:
            logger.error("%s, another one starts in %g s", what, delay_s)
            worker.start_at = self._clock() + delay_s

    def _end_if_drained(self) -> None:
        """Let the workers end together: one that went before the others would leave its part of the connections unanswered."""
        if all(worker.has_drained or not worker.pid for worker in self._workers):
            for worker in self._workers:
                if worker.reports is not None:
                    worker.reports.order(END)

    def _reap(self, worker: _Worker) -> int:
        """Wait for the end of a process that is ending, and return its status."""
        assert worker.reports is not None
        self._selector.unregister(worker.reports.connection)
        worker.reports.connection.close()
        _, status = os.waitpid(worker.pid, 0)
        worker.pid, worker.reports = 0, None
        return status


def _can_be_built(settings: Settings) -> bool:
    """Whether backends and stores can be built, so that a mistake is told once. Tried elsewhere: some parts start threads."""

    def build() -> int:
        build_services(settings)
        return 0

    _, status = os.waitpid(_fork(build), 0)
    return status == 0


def _fork(work: Callable[[], int]) -> int:
    """Do something in a process of its own, whose exit code it returns. Returns the process."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = work()
    except ConfigError as error:
        for line in error.errors:
            say(f"baton: {line}", sys.stderr)
    except BaseException:
        logger.exception("process %d broke", os.getpid())
    finally:
        logging.shutdown()
        os._exit(code)


def _make_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="baton-workers-"))
    if len(os.fsencode(folder)) > _MAX_FOLDER_BYTES:
        folder.rmdir()
        raise ConfigError([f"TMPDIR: the path {folder.parent} is too long for the sockets of the workers"])
    return folder


class _Reporter:
    """Tells the parent how a worker gets on."""

    def __init__(self) -> None:
        self.orders: Orders | None = None

    def listening(self, models: tuple[str, ...]) -> None:
        """The parent has said so already."""

    def ready(self, summary: str) -> None:
        """Every worker says so once."""
        self._report(READY + summary)

    def reloaded(self) -> None:
        """The parent starts later workers with the same."""
        self._report(RELOADED)

    async def drained(self) -> None:
        """Wait for the others."""
        assert self.orders is not None
        self._report(DRAINED)
        await self.orders.may_end.wait()

    def _report(self, line: str) -> None:
        assert self.orders is not None
        self.orders.report(line)
