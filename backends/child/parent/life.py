"""One life of an engine child: from the start of the process until it is reaped, with every request that it worked on.

Knows the process, the channel and the pulse; what happens after the end is the supervisor's. Whatever way `run` is left, also
by cancellation, no process, descriptor or socket stays behind.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from backends.child.config import ChildConfig
from backends.child.messages import Heartbeat, LoadFailed, Ready, Reply, Shutdown
from backends.child.parent.channel import Channel
from backends.child.parent.engine_log import EngineLog
from backends.child.parent.in_flight import InFlight
from backends.child.parent.process import ChildProcess, describe_exit
from backends.child.parent.vital_signs import TICK_S, VitalSigns
from backends.errors import BackendError, Failed, Unavailable

SHUTDOWN_TIMEOUT_S = 3.0
_REAP_TIMEOUT_S = 2.0
_MAX_MESSAGE_CHARS = 1000
_LAST_WORDS_TIMEOUT_S = 1.0


class Ending(NamedTuple):
    """Why a life ended: `stopped` because we asked, `refused` where a new attempt cannot help, `crashed` otherwise."""

    kind: Literal["stopped", "refused", "crashed"]
    message: str
    was_ready: bool = False


class Life:
    """A child that serves model `name`.

    Args:
        command: what starts a child, without the options of `backends.child.worker`.
        on_ready: called once when the model is loaded.

    Attributes:
        ready: what the child said when the model was loaded; None before, and from the moment its end is known.
        slots: how many choices it generates at once.
        beat: the last heartbeat.
        in_flight: the requests it works on.
        channel: the way to it.

    Raises:
        OSError: the process or its socket cannot be made.
    """

    def __init__(self, name: str, config: ChildConfig, command: Sequence[str], on_ready: Callable[[Ready], None]) -> None:
        self._name = name
        self._on_ready = on_ready
        self._verdict: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._vital_signs = VitalSigns(config, time.monotonic())
        self.log = EngineLog(name)
        self.ready: Ready | None = None
        self.slots = config.slots
        self._was_ready = False
        self.beat: Heartbeat | None = None
        self.in_flight = InFlight()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel = Channel(ours, self._receive, self._receive_garbage)
        # Ours must not keep the child's end open, or the end of the stream would never come.
        with theirs:
            fd = theirs.fileno()
            arguments = ("--fd", str(fd), "--config", msgspec.json.encode(config).decode(), "--name", name)
            try:
                self._process = ChildProcess((*command, *arguments), self.log.feed, pass_fds=(fd,))
            except BaseException:
                self.channel.close()
                raise

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    async def run(self, stop: asyncio.Future[None]) -> Ending:
        """Serve until the child ends, has to be ended, or `stop` is done."""
        try:
            ending = await self._watch(stop)
            if ending.kind == "stopped" and self.ready is not None:
                await self._shut_down()
            self._end(ending)
            self._process.kill()
            # A killed process that the kernel still holds cannot be replaced yet: so is its memory.
            while not await self._has_exited_within(_REAP_TIMEOUT_S) and not stop.done():
                pass
            return ending
        finally:
            self._end(Ending("stopped", "The engine was stopped."))
            self._process.dispose()

    async def _watch(self, stop: asyncio.Future[None]) -> Ending:
        """Wait for the first reason to end."""
        exited = self._process.exited
        while True:
            await first_of(exited, stop, self._verdict, timeout_s=TICK_S)
            if stop.done():
                return Ending("stopped", "The engine was stopped.")
            self._process.poll()
            if exited.done():
                await self._hear_last_words()
            else:
                self.channel.drain()
                self._vital_signs.tick(time.monotonic())
            if self._verdict.done():
                return self._verdict.result()
            if exited.done():
                return self._crash(describe_exit(exited.result()))
            if (reason := self._vital_signs.hang()) is not None:
                return self._crash(f"{reason} and was killed")
            if self._vital_signs.is_late():
                return Ending("refused", f"The model '{self._name}' did not load within its load_timeout_s and was stopped.")

    async def _hear_last_words(self) -> None:
        """Read what the child sent before it ended: why it could not load, or the end of an answer."""
        # All of it is in our socket by now; only somebody who outlived the child could add to it.
        deadline = time.monotonic() + _LAST_WORDS_TIMEOUT_S
        while self.channel.drain() and time.monotonic() < deadline:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)  # others get their turn

    async def _shut_down(self) -> None:
        self.ready = None
        self.in_flight.fail_all(_stopped(self._name))
        self.channel.send_surely(Shutdown())
        await self._has_exited_within(SHUTDOWN_TIMEOUT_S)

    async def _has_exited_within(self, seconds: float) -> bool:
        exited, deadline = self._process.exited, time.monotonic() + seconds
        while not exited.done() and time.monotonic() < deadline:
            await first_of(exited, timeout_s=TICK_S)
            self._process.poll()
        return exited.done()

    def _end(self, ending: Ending) -> None:
        """Take no more requests, and end those that run."""
        self.ready = None
        self.channel.close()
        error = Failed(ending.message, code="engine_crashed", retry_after_s=1.0)
        self.in_flight.fail_all(error if ending.kind == "crashed" else _stopped(self._name))

    def _crash(self, what: str) -> Ending:
        return Ending("crashed", f"The engine of the model '{self._name}' {what}.", self._was_ready)

    def _receive(self, reply: Reply) -> None:
        self._vital_signs.heard()
        match reply:
            case Heartbeat():
                self.beat = reply
                self._vital_signs.beat(reply.step_age_s)
            case Ready():
                self.ready = reply
                self.slots = reply.slots
                self._was_ready = True
                self._vital_signs.ready()
                self._on_ready(reply)
            case LoadFailed() if not self._was_ready:
                self._decide(Ending("refused", reply.message[:_MAX_MESSAGE_CHARS]))
            case LoadFailed():
                self._receive_garbage("LoadFailed although the model was loaded")
            case _:
                self.in_flight.deliver(reply)

    def _receive_garbage(self, what: str) -> None:
        self._decide(self._crash(f"sent {what} and was killed"))

    def _decide(self, ending: Ending) -> None:
        if not self._verdict.done():
            self._verdict.set_result(ending)


async def first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Wait until one of the futures is done; none is cancelled."""
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


def _stopped(name: str) -> BackendError:
    return Unavailable(f"The model '{name}' was stopped.")
