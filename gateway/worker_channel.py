"""What the parent of the workers and a worker say to each other, over a pair of sockets.

Orders are single bytes, reports are lines. The end of the stream says that the other side is gone, also when it was killed: so
workers need no signals, which may come from everywhere and twice (a terminal and systemd send them to all processes of a
group), and a worker without a parent drains and ends.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Order = Literal[b"s", b"r", b"e"]
STOP: Order = b"s"
RELOAD: Order = b"r"
END: Order = b"e"
"""To a worker that has drained: all others have, too."""

READY = "ready "
RELOADED = "reloaded"
DRAINED = "drained"

_MAX_REPORT_BYTES = 1 << 16


class Orders:
    """The worker's side.

    Args:
        on_stop: called for each order to stop; where there was none, once when the parent is gone.
        on_reload: called for each order to reload.

    Attributes:
        may_end: set by the order to end, and when there is no parent that could give it.
        is_orphan: the parent is gone.
    """

    def __init__(self, connection: socket.socket, on_stop: Callable[[], None], on_reload: Callable[[], None]) -> None:
        self._connection = connection
        self._on_stop = on_stop
        self._on_reload = on_reload
        self._is_stopping = False
        self.may_end = asyncio.Event()
        self.is_orphan = False
        connection.setblocking(False)

    def follow(self) -> None:
        """Carry out orders from now on, in the running event loop."""
        asyncio.get_running_loop().add_reader(self._connection, self._receive)

    def report(self, line: str) -> None:
        """Tell the parent. What does not fit into the socket's buffer is lost."""
        with suppress(OSError):
            self._connection.send(line.replace("\n", " ").encode()[: _MAX_REPORT_BYTES - 1] + b"\n")

    def _receive(self) -> None:
        try:
            data = self._connection.recv(256)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._connection)
            self.is_orphan = True
            self.may_end.set()
            if not self._is_stopping:
                self._on_stop()
        for order in data:
            if order == STOP[0]:
                self._is_stopping = True
                self._on_stop()
            elif order == RELOAD[0]:
                self._on_reload()
            else:
                self.may_end.set()


class Reports:
    """The parent's side, without an event loop."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._line = bytearray()
        connection.setblocking(False)

    def order(self, order: Order) -> None:
        """Tell the worker. One that is gone, or does not listen any more, is past orders."""
        with suppress(OSError):
            self.connection.send(order)

    def read(self) -> list[str] | None:
        """The lines that have come; None when the worker is gone."""
        try:
            data = self.connection.recv(_MAX_REPORT_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self._line += data
        *lines, rest = self._line.split(b"\n")
        self._line = rest[:_MAX_REPORT_BYTES]
        return [line.decode("utf-8", "replace") for line in lines]


def open_channel() -> tuple[Reports, socket.socket]:
    """The parent's side, and the socket for the worker's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Reports(ours), theirs


def describe_exit(status: int) -> str:
    """Say how a process ended, from what `os.waitpid` returned."""
    code = os.waitstatus_to_exitcode(status)
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
