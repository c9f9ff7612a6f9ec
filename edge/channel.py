"""The parent's end of the ZeroMQ PAIR socket to one life of an engine child, driven by the event loop that runs.

Knows messages as structs and the socket; what they mean is the caller's. `zmq.asyncio` is not used: it costs a future and a
poll per message. The socket's descriptor is *edge*-triggered in ZeroMQ's sense (zmq_getsockopt(3), ZMQ_FD): it may stay silent
while messages wait, so `EVENTS` is asked after every send and the queue is emptied on every wake-up.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from edge.messages import Command, Reply, encoder, reply_decoder

_MAX_REPLIES_PER_WAKE_UP = 64  # then others get their turn
_MAX_WAITING_COMMANDS = 4096
_MAX_WAITING_REPLIES = 16384
_MAX_REPLY_BYTES = 256 * 1024**2


class ChannelFull(Exception):
    """The child has not read its commands for long."""


class Channel:
    """Binds a fresh address in a private folder; replies come through callbacks on the event loop until `close`.

    Args:
        context: whose I/O thread moves the bytes.
        on_reply: gets every reply, in order.
        on_garbage: told once, with the reason, when the child sends what is no reply; nothing is read after that.

    Raises:
        OSError, zmq.ZMQError: no socket can be made.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", on_reply: Callable[[Reply], None], on_garbage: Callable[[str], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_reply = on_reply
        self._on_garbage = on_garbage
        self._postponed: deque[bytes] = deque()
        self._closed = False
        self._is_deaf = False
        self._drain_is_scheduled = False
        self._folder = _private_folder()
        self.address = f"ipc://{self._folder}/s"
        try:
            self._socket = _bind(context, self.address)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._is_disconnected = asyncio.Event()
        self._is_disconnected.set()
        self._loop.add_reader(self._monitor.fileno(), self._read_monitor)
        self._fd = self._socket.fileno()
        self._loop.add_reader(self._fd, self.drain)

    def send(self, command: Command) -> None:
        """Hand a command over without waiting. No effect once closed.

        Raises:
            ChannelFull: thousands of commands wait already.
            ValueError, TypeError, OverflowError, RecursionError: the command has no MessagePack form.
        """
        if self._closed:
            return
        data = encoder.encode(command)
        if self._postponed:
            raise ChannelFull
        self._send(data)

    def send_surely(self, command: Command) -> None:
        """As `send`, but when the child does not read, the command is kept until it does. For those that end other commands."""
        if self._closed:
            return
        self._postponed.append(encoder.encode(command))
        self._send_postponed()

    def drain(self) -> bool:
        """Hand over the replies that are here: 64 at most, the rest in the next round of the loop. True if some are left."""
        self._drain_is_scheduled = is_empty = False
        for _ in range(_MAX_REPLIES_PER_WAKE_UP):
            if self._closed or self._is_deaf:
                return False
            try:
                data = self._socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                is_empty = True
                break
            try:
                reply = reply_decoder.decode(data)
            except msgspec.DecodeError as error:
                self._is_deaf = True
                self._loop.remove_reader(self._fd)
                self._on_garbage(f"{len(data):,} bytes that are no message ({str(error)[:200]})")
                return False
            self._on_reply(reply)
        self._send_postponed()
        self._look_again()
        return not is_empty

    async def disconnected(self, timeout_s: float) -> None:
        """Wait until all that the child ever sent was read from the wire, because nobody is connected (any more)."""
        self._read_monitor()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_disconnected.wait()

    def close(self) -> None:
        """Drop everything that waits and remove the socket's folder. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._postponed.clear()
        self._loop.remove_reader(self._fd)
        self._loop.remove_reader(self._monitor.fileno())
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read_monitor(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                event = int.from_bytes(self._monitor.recv_multipart(zmq.DONTWAIT)[0][:2], sys.byteorder)
                if event == zmq.EVENT_ACCEPTED:
                    self._is_disconnected.clear()
                elif event == zmq.EVENT_DISCONNECTED:
                    self._is_disconnected.set()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data, zmq.DONTWAIT)
        except zmq.Again:
            raise ChannelFull from None
        finally:
            self._look_again()

    def _send_postponed(self) -> None:
        while self._postponed and not self._closed:
            try:
                self._send(self._postponed[0])
            except ChannelFull:
                return
            self._postponed.popleft()

    def _look_again(self) -> None:
        # Sending, too, takes ZeroMQ's wake-up signals out of the descriptor, which then stays silent about a reply that came.
        if not self._closed and not self._drain_is_scheduled and int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._drain_is_scheduled = True
            self._loop.call_soon(self.drain)


def _bind(context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PAIR)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, _MAX_WAITING_COMMANDS)
        socket.setsockopt(zmq.RCVHWM, _MAX_WAITING_REPLIES)
        socket.setsockopt(zmq.MAXMSGSIZE, _MAX_REPLY_BYTES)
        socket.bind(address)
    except zmq.ZMQError:
        socket.close(0)
        raise
    return socket


def _private_folder() -> Path:
    """A new folder that only this user may enter, with a path short enough for a socket address."""
    longest = zmq.IPC_PATH_MAX_LEN - len("/s") - 1
    folder = tempfile.mkdtemp(prefix="baton-")
    if len(folder.encode()) > longest:
        shutil.rmtree(folder, ignore_errors=True)
        folder = tempfile.mkdtemp(prefix="baton-", dir="/tmp")
    return Path(folder)
