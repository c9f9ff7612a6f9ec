"""Runs the gateway as a process: listens, loads the models, drains on SIGTERM or SIGINT, and goes.

    listening > loading > ready > draining > closing backends > exit

The socket listens before the models load, so that health checks get an answer from the first moment. A signal first makes
readiness fail and refuses new requests, with the socket still open: a load balancer sees a 503, not a refused connection. What
still runs when the drain time is over is ended by closing the backends, which ends streams with an error event; connections are
cut only after that. A second signal skips the wait, a third one skips everything.
"""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import TextIO

import uvicorn
import uvloop

from backends.types import Health
from gateway.app import create_app
from gateway.config import Settings
from gateway.http_protocol import BoundedHttp
from gateway.services import Services, build_services
from gateway.telemetry.logs import configure_logging

logger = logging.getLogger(__name__)

CUT_CONNECTIONS_AFTER_S = 2
_UNWIND_TIMEOUT_S = 5.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def serve(settings: Settings) -> int:
    """Serve until a signal comes, and return the exit code: 0 after a drain, 1 when it could not start or was forced."""
    configure_logging(settings.server.log_level, settings.server.log_format)
    try:
        listener = _bind(settings.server.host, settings.server.port)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "; another program uses the port, choose one with --port" if error.errno == errno.EADDRINUSE else ""
        _say(f"baton: cannot listen on {settings.server.host}:{settings.server.port}: {reason}{hint}", sys.stderr)
        return 1
    with listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Run(settings, listener).run())


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, and with an event for the moment it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `_Run`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        self.listening.set()


class _Run:
    """One life of the process."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._listener = listener
        self._url = _url(settings.server.host, listener.getsockname()[1])
        self._drain_timeout_s = settings.server.drain_timeout_s
        self._services: Services = build_services(settings)
        self._server = _Server(_uvicorn_config(settings, self._services))
        self._signals = 0
        self._stop = asyncio.Event()
        self._force = asyncio.Event()

    async def run(self) -> int:
        """Serve, and return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        serving = asyncio.create_task(self._server.serve([self._listener]))
        starting = asyncio.create_task(self._start_models())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((serving, stopping, starting), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and starting.result():
                await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            started = not starting.done() or starting.result()
            starting.cancel()
            await self._drain()
            await asyncio.wait((starting,), timeout=_UNWIND_TIMEOUT_S)
        finally:
            await self._services.close()
            self._server.should_exit = True
            await asyncio.wait((serving,))
            stopping.cancel()
        serving.result()
        return 0 if started and not self._force.is_set() else 1

    async def _start_models(self) -> bool:
        """Load all models; False when none of them can ever answer."""
        await self._server.listening.wait()
        names = ", ".join(self._services.catalog.names())
        _say(f"Baton listens on {self._url} and loads {names}")
        healths = await self._services.start()
        if all(health.state in ("failed", "stopped") for health in healths.values()):
            for name, health in healths.items():
                _say(f"baton: model {name} did not start: {health.detail}", sys.stderr)
            return False
        _say(f"Baton is ready: {self._url}  ({_summary(healths)})")
        return True

    async def _drain(self) -> None:
        self._services.drain.begin()
        if not self._services.drain.active:
            return
        logger.info("draining: %d requests still run", self._services.drain.active)
        idle = asyncio.create_task(self._services.drain.wait_idle())
        force = asyncio.create_task(self._force.wait())
        await asyncio.wait((idle, force), timeout=self._drain_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        force.cancel()
        if self._services.drain.active:
            logger.warning("%d requests are cut off", self._services.drain.active)

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self._stop.set()
        elif self._signals == 2:
            self._force.set()
            self._server.force_exit = True
        else:
            os._exit(1)


def _uvicorn_config(settings: Settings, services: Services) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(services),
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.server.keep_alive_s,
        timeout_graceful_shutdown=CUT_CONNECTIONS_AFTER_S,
    )


def _bind(host: str, port: int) -> socket.socket:
    """Bind the first address that `host` stands for, IPv4 before IPv6."""
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Bound is not busy: on Linux only listening tells two servers on one port apart.
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _url(host: str, port: int) -> str:
    shown = _WILDCARDS.get(host, f"[{host}]" if ":" in host and not host.startswith("[") else host)
    return f"http://{shown}:{port}"


def _summary(healths: dict[str, Health]) -> str:
    serving = [name for name, health in healths.items() if health.state in ("ready", "degraded")]
    failed = [name for name in healths if name not in serving]
    text = f"{'model' if len(serving) == 1 else 'models'} {', '.join(serving)}"
    return f"{text}; not serving: {', '.join(failed)}" if failed else text


def _say(line: str, stream: TextIO | None = None) -> None:
    # Whoever started the server may have closed the pipe; that is no reason to stop serving.
    with contextlib.suppress(OSError):
        print(line, file=stream or sys.stdout, flush=True)
