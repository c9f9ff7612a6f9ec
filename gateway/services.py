"""The composition root: builds, starts and closes everything that one gateway holds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from backends.errors import BackendError
from backends.protocol import Backend
from backends.types import Health
from edge.config import EdgeConfig
from gateway.admission.config import AdmissionConfig
from gateway.admission.queue import Queue
from gateway.backends import build_backends
from gateway.config import Settings
from gateway.dispatch.catalog import Catalog
from gateway.dispatch.dispatch import Dispatch
from gateway.middleware.drain import DrainState
from gateway.routing.router import Router
from gateway.stores import Stores
from gateway.telemetry.telemetry import Telemetry
from gateway.version import gateway_version

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_CLOSE_TIMEOUT_S = 10.0


class Services:
    """What the application is made of. Built by `build_services`, lives as long as the server.

    Args:
        backends: by configured name.
        starters: what loads each backend; a backend without one is ready at once.
    """

    def __init__(
        self, settings: Settings, backends: Mapping[str, Backend], starters: Mapping[str, Callable[[], Awaitable[None]]]
    ) -> None:
        self.settings = settings
        self.backends = dict(backends)
        self.stores = Stores(settings)
        self.router = Router(
            settings.routes, backends, breaker=settings.breaker, retry=settings.retries, health=settings.health
        )
        self.catalog = Catalog(self.router, backends)
        self.queues = {name: Queue(_queue_config(settings, name)) for name in self.router.names()}
        self.telemetry = Telemetry({*backends, *self.router.names()}, version=gateway_version())
        self.dispatch = Dispatch(self.router, self.catalog, self.queues, self.stores.limiter, self.telemetry, settings.prices)
        self.drain = DrainState()
        self._starters = dict(starters)
        self._failures: dict[str, str] = {}

    async def start(self) -> dict[str, Health]:
        """Load all models, side by side, and return how each one is once none loads any more. Never raises for a model."""
        await self.stores.start()
        self.router.start()
        await asyncio.gather(*(self._start_one(name, start) for name, start in self._starters.items()))
        while True:
            healths = await self.healths()
            if all(health.state != "loading" for health in healths.values()):
                return healths
            await asyncio.sleep(_POLL_S)

    async def healths(self) -> dict[str, Health]:
        """Say how each model is, by configured name."""
        healths = {}
        for name, backend in self.backends.items():
            if name in self._failures:
                healths[name] = Health(state="failed", detail=self._failures[name])
            else:
                healths[name] = await backend.health()
        return healths

    async def close(self) -> None:
        """Close all backends, last built first, each within 10 s; running requests fail with `Unavailable`."""
        for queue in self.queues.values():
            queue.close()
        for backend in reversed({id(backend): backend for backend in self.backends.values()}.values()):
            await self._close_one(backend)
        await self.router.close()
        await self.stores.close()

    async def _close_one(self, backend: Backend) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await backend.close()
        except TimeoutError:
            logger.error("a backend did not close within %g s", _CLOSE_TIMEOUT_S)
        except Exception:
            # The others must still be closed.
            logger.exception("a backend failed while it closed")

    async def _start_one(self, name: str, start: Callable[[], Awaitable[None]]) -> None:
        try:
            await start()
        except BackendError as error:
            self._failures[name] = error.message
            logger.error("model %s did not start: %s", name, error.message)
        except Exception as error:
            self._failures[name] = f"{type(error).__name__} while starting"
            logger.exception("model %s did not start", name)


def build_services(settings: Settings) -> Services:
    """Build every backend of a configuration, without starting any.

    Raises:
        ConfigError: a model asks for an engine that is not installed, or a store for what is missing.
    """
    backends, starters = build_backends(settings.models)
    return Services(settings, backends, starters)


def _queue_config(settings: Settings, name: str) -> AdmissionConfig:
    """The queue of a public name. An engine of our own is kept just busy, so that the order is decided here."""
    config = settings.queues.get(name, settings.queue)
    model = settings.models.get(name)
    if config.max_running or name in settings.routes or not isinstance(model, EdgeConfig):
        return config
    # A few more than fit: the engine must not wait for us when a slot is free.
    running = model.slots + max(1, model.slots // 4)
    return AdmissionConfig(max_running=running, max_waiting=config.max_waiting, max_wait_s=config.max_wait_s)
