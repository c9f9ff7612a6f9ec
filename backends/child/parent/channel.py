"""The parent's end of the socket pair to one life of an engine child, driven by the event loop that runs.

Knows messages as structs and the socket; what they mean is the caller's. Both asyncio and uvloop call whenever something can be
read, and go on calling until it was: one read per wake-up is enough. asyncio's streams are not used: they cost a task and a
future per message.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from backends.child.frames import BadFrame, FrameReader, frame
from backends.child.messages import Command, Reply, encoder, reply_decoder

_READ_BYTES = 65536
_MAX_REPLIES_PER_WAKE_UP = 64  # then others get their turn
_MAX_SENDS_PER_WAKE_UP = 64
_MAX_WAITING_COMMANDS = 4096
_MAX_WAITING_BYTES = 64 * 2**20


class ChannelFull(Exception):
    """The child has not read its commands for long."""


class Channel:
    """Sends at once what the kernel takes and keeps the rest; replies come through callbacks on the event loop until `close`.

    That the child closed its end is not reported: it has exited, which the owner of the process learns, or it falls silent.

    Args:
        end: a connected stream socket, owned by the channel from now on.
        on_reply: gets every reply, in order.
        on_garbage: told once, with the reason, when the child sends what is no reply; nothing is read after that.
    """

    def __init__(self, end: socket.socket, on_reply: Callable[[Reply], None], on_garbage: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = end
        self._on_reply = on_reply
        self._on_garbage = on_garbage
        self._frames = FrameReader()
        self._bodies: Iterator[bytes] | None = None  # of the last read, as long as some are left
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._is_deaf = self._is_mute = False  # nothing can be heard, or said, any more
        self._drain_is_scheduled = False
        end.setblocking(False)
        self._fd = end.fileno()
        self._loop.add_reader(self._fd, self.drain)

    def send(self, command: Command) -> None:
        """Hand a command over without waiting. No effect once closed, or when the child has closed its end.

        Raises:
            ChannelFull: thousands of commands or 64 MiB wait already.
            ValueError, TypeError, OverflowError, RecursionError: the command has no MessagePack form, or one that is too long.
        """
        data = frame(encoder.encode(command))
        if self._waiting:
            is_full = len(self._waiting) >= _MAX_WAITING_COMMANDS or self._waiting_bytes + len(data) > _MAX_WAITING_BYTES
            if is_full:
                raise ChannelFull
        self._send(data)

    def send_surely(self, command: Command) -> None:
        """As `send`, but however much waits. For those that end other commands."""
        self._send(frame(encoder.encode(command)))

    def drain(self) -> bool:
        """Hand over replies that are here: 64 at most, the rest in the next round of the loop. False if there were none."""
        if self._is_deaf:
            return False
        bodies = self._bodies
        if bodies is None:
            data = self._read()
            if not data:
                return False
            bodies = self._bodies = self._frames.feed(data)
        for _ in range(_MAX_REPLIES_PER_WAKE_UP):
            reply = self._next_reply(bodies)
            if reply is None:
                self._bodies = None
                return True
            self._on_reply(reply)
            if self._is_deaf:
                return False
        if not self._drain_is_scheduled:
            self._drain_is_scheduled = True
            self._loop.call_soon(self._drain_on)
        return True

    def close(self) -> None:
        """Drop everything that waits. May be called twice."""
        self._stop_hearing()
        self._stop_sending()
        self._socket.close()

    def _drain_on(self) -> None:
        self._drain_is_scheduled = False
        # Without anything left of the last read it is for the reader to say when there is more.
        if self._bodies is not None:
            self.drain()

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return b""
        except ConnectionError:
            data = b""  # it closed its end with commands unread; what it sent before has been read
        if not data:
            self._stop_hearing()
        return data

    def _next_reply(self, bodies: Iterator[bytes]) -> Reply | None:
        body = b""
        try:
            for body in bodies:
                return reply_decoder.decode(body)
        except BadFrame as error:
            self._stop_hearing()
            self._on_garbage(str(error))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._stop_hearing()
            self._on_garbage(f"{len(body):,} bytes that are no message ({str(error)[:200]})")
        return None

    def _send(self, data: bytes) -> None:
        if self._is_mute:
            return
        rest = memoryview(data)
        if not self._waiting:
            rest = rest[self._send_some(rest) :]
            if not rest or self._is_mute:
                return
            self._loop.add_writer(self._fd, self._send_waiting)
        self._waiting.append(rest)
        self._waiting_bytes += len(rest)

    def _send_waiting(self) -> None:
        for _ in range(_MAX_SENDS_PER_WAKE_UP):
            first = self._waiting[0]
            sent = self._send_some(first)
            if self._is_mute:
                return
            self._waiting_bytes -= sent
            if sent < len(first):
                self._waiting[0] = first[sent:]
                return
            self._waiting.popleft()
            if not self._waiting:
                self._loop.remove_writer(self._fd)
                return

    def _send_some(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except ConnectionError:
            self._stop_sending()
            return 0

    def _stop_hearing(self) -> None:
        if not self._is_deaf:
            self._is_deaf = True
            self._bodies = None
            self._loop.remove_reader(self._fd)

    def _stop_sending(self) -> None:
        if not self._is_mute:
            self._is_mute = True
            if self._waiting:
                self._loop.remove_writer(self._fd)
            self._waiting.clear()
            self._waiting_bytes = 0
