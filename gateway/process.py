"""One process that serves: it listens, loads the models, reloads when it is told to, drains, and goes.

    opening stores > listening > loading > ready > draining > closing backends > exit

It answers before the models load, so that health checks work from the first moment on. The first `stop` makes readiness fail
and refuses new requests, with the socket still open: a load balancer sees a 503, not a refused connection. What still runs when
the drain time is over is ended by closing the backends, which ends streams with an error event; connections are cut only after
that. A second `stop` skips the wait, a third one skips everything.
"""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, TextIO

import uvicorn

from backends.types import Health
from gateway.app import create_app
from gateway.config import Settings
from gateway.http_protocol import BoundedHttp
from gateway.operation import Operation
from gateway.peers import Peers
from gateway.reload import Reloader
from gateway.services import Services, build_services

logger = logging.getLogger(__name__)

Load = Callable[[], Settings]

CUT_CONNECTIONS_AFTER_S = 2
_ALLOCATIONS_BETWEEN_COLLECTIONS = 20_000
_CLOSE_TIMEOUT_S = 15.0
_UNWIND_TIMEOUT_S = 5.0


class Watcher(Protocol):
    """Is told how the process gets on."""

    def listening(self, models: tuple[str, ...]) -> None:
        """It answers, and begins to load these."""

    def ready(self, summary: str) -> None:
        """It has loaded what it can."""

    def reloaded(self) -> None:
        """It has gone over to another configuration."""

    async def drained(self) -> None:
        """Nothing runs any more, or may. Returns when it may end; until then it goes on to say that it drains."""


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, and with an event for the moment it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever owns the process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        self.listening.set()


class ServingProcess:
    """One life of it. `stop` and `reload` may be called from signal handlers of the loop.

    Args:
        load: reads the configuration again.
        watcher: told of what happens.
        peers: the other workers; None where this process is alone.

    Raises:
        ConfigError: a backend or a store cannot be built.
    """

    def __init__(
        self, settings: Settings, listener: socket.socket, load: Load, watcher: Watcher, peers: Peers | None = None
    ) -> None:
        self._listener = listener
        self._watcher = watcher
        self._services: Services = build_services(settings)
        self._reloader = Reloader(self._services, load, watcher.reloaded)
        self._operation = Operation(self._services, self._reloader, peers)
        self._server = _Server(_uvicorn_config(settings, self._services, self._operation))
        self._stops = 0
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self) -> int:
        """Serve, and return the exit code: 0 after a drain, 1 when it could not start or was forced."""
        await self._services.open()
        await self._operation.start()
        serving = asyncio.create_task(self._server.serve([self._listener]))
        starting = asyncio.create_task(self._start_models())
        stopping = asyncio.create_task(self._stop.wait())
        reloading = asyncio.create_task(self._reload_when_told(starting))
        try:
            await asyncio.wait((serving, stopping, starting), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and starting.result():
                await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            started = not starting.done() or starting.result()
            starting.cancel()
            await self._drain()
            if self._stop.is_set():
                await self._until_all_drained()
            reloading.cancel()
            await asyncio.wait((starting, reloading), timeout=_UNWIND_TIMEOUT_S)
        finally:
            await self._operation.close()
            await self._close_services()
            self._server.should_exit = True
            await asyncio.wait((serving,))
            stopping.cancel()
        serving.result()
        return 0 if started and not self._force.is_set() else 1

    def stop(self) -> None:
        """Drain and end; the second time without waiting, the third time at once."""
        self._stops += 1
        if self._stops == 1:
            self._stop.set()
        elif self._stops == 2:
            self._force.set()
            self._server.force_exit = True
        else:
            os._exit(1)

    def reload(self) -> None:
        """Read the configuration again, once the models are loaded and no other reload runs. How that ends is logged."""
        self._reload.set()

    async def _start_models(self) -> bool:
        """Load all models; False when none of them can ever answer."""
        await self._server.listening.wait()
        self._watcher.listening(self._services.catalog.names())
        healths = await self._services.start()
        if all(health.state in ("failed", "stopped") for health in healths.values()):
            for name, health in healths.items():
                say(f"baton: model {name} did not start: {health.detail}", sys.stderr)
            return False
        _calm_garbage_collector()
        self._watcher.ready(_summary(healths))
        return True

    async def _reload_when_told(self, starting: asyncio.Task[bool]) -> None:
        await asyncio.wait((starting,))
        while True:
            await self._reload.wait()
            # A signal that comes while it is read means to read it once more.
            self._reload.clear()
            await self._reloader.reload_or_log()

    async def _drain(self) -> None:
        drain = self._services.drain
        drain.begin()
        idle = asyncio.gather(drain.wait_idle(), self._services.batches.drain())
        if drain.active:
            logger.info("draining: %d requests still run", drain.active)
        force = asyncio.create_task(self._force.wait())
        timeout_s = self._services.settings.server.drain_timeout_s
        await asyncio.wait((idle, force), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        force.cancel()
        if drain.active:
            logger.warning("%d requests are cut off", drain.active)

    async def _close_services(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._services.close()
        except TimeoutError:
            logger.error("models and stores did not close within %g s", _CLOSE_TIMEOUT_S)

    async def _until_all_drained(self) -> None:
        drained = asyncio.create_task(self._watcher.drained())
        force = asyncio.create_task(self._force.wait())
        await asyncio.wait((drained, force), return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        force.cancel()


def _calm_garbage_collector() -> None:
    """Look for garbage less often, and never again among what lives as long as the process: 9 % of the time under load."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS, 20, 50)


def say(line: str, stream: TextIO | None = None) -> None:
    """Print a line for whoever started the gateway."""
    # They may have closed the pipe; that is no reason to stop serving.
    with contextlib.suppress(OSError):
        print(line, file=stream or sys.stdout, flush=True)


def _uvicorn_config(settings: Settings, services: Services, operation: Operation) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(services, operation),
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


def _summary(healths: dict[str, Health]) -> str:
    serving = [name for name, health in healths.items() if health.state in ("ready", "degraded")]
    failed = [name for name in healths if name not in serving]
    text = f"{'model' if len(serving) == 1 else 'models'} {', '.join(serving)}"
    return f"{text}; not serving: {', '.join(failed)}" if failed else text
