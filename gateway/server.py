"""Runs the gateway: in this process, or in several that share its port.

Signals: SIGTERM and SIGINT drain and end (again: without waiting), SIGHUP reads the configuration again.
"""

import asyncio
import errno
import signal
import socket
import sys
from contextlib import ExitStack

import uvloop

from gateway.config import Settings
from gateway.process import Load, ServingProcess, say
from gateway.telemetry.logs import configure_logging
from gateway.workers import Workers

_BACKLOG = 2048
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def serve(load: Load) -> int:
    """Serve until a signal comes, and return the exit code: 0 after a drain, 1 when it could not start or was forced.

    Args:
        load: reads the configuration; called again for every reload.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    settings = load()
    server = settings.server
    configure_logging(server.log_level, server.log_format)
    try:
        listeners = _listen(server.host, server.port, server.workers)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "; another program uses the port, choose one with --port" if error.errno == errno.EADDRINUSE else ""
        say(f"baton: cannot listen on {server.host}:{server.port}: {reason}{hint}", sys.stderr)
        return 1
    url = _url(server.host, listeners[0].getsockname()[1])
    try:
        if server.workers > 1:
            return Workers(settings, load, listeners, url).run()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve_alone(settings, listeners[0], load, url))
    finally:
        for listener in listeners:
            listener.close()


class _Printer:
    """Says to whoever started the gateway how far it is."""

    def __init__(self, url: str) -> None:
        self._url = url

    def listening(self, models: tuple[str, ...]) -> None:
        say(f"Baton listens on {self._url} and loads {', '.join(models)}")

    def ready(self, summary: str) -> None:
        say(f"Baton is ready: {self._url}  ({summary})")

    def reloaded(self) -> None:
        """The log has it."""

    async def drained(self) -> None:
        """There is nobody to wait for."""


async def _serve_alone(settings: Settings, listener: socket.socket, load: Load, url: str) -> int:
    process = ServingProcess(settings, listener, load, _Printer(url))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stop)
    loop.add_signal_handler(signal.SIGHUP, process.reload)
    return await process.run()


def _listen(host: str, port: int, count: int) -> list[socket.socket]:
    """Listen on the first address that `host` stands for, IPv4 before IPv6, with one socket for each worker.

    The kernel deals connections out to sockets of the same port. Workers that share one socket race for them instead, and
    under load one of them wins nearly all.
    """
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    first = _bind(family, address)
    if count == 1:
        return [first]
    # Only a socket that does not share its port finds out whether another program has it.
    with first:
        address = first.getsockname()
    with ExitStack() as opened:
        listeners = [opened.enter_context(_bind(family, address, share_port=True)) for _ in range(count)]
        opened.pop_all()
    return listeners


def _bind(family: int, address: tuple[str | int, ...] | tuple[int, bytes], *, share_port: bool = False) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        # Bound is not busy: on Linux only listening tells two servers on one port apart.
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _url(host: str, port: int) -> str:
    shown = _WILDCARDS.get(host, f"[{host}]" if ":" in host and not host.startswith("[") else host)
    return f"http://{shown}:{port}"
