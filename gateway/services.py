"""The composition root: builds, starts and closes everything that one gateway holds.

The only module that knows concrete backends. The GGUF engine is imported only when a model asks for it, so that the gateway
also works where the extra `edge` is not installed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from backends.errors import BackendError
from backends.fake import FakeBackend, FakeModel
from backends.protocol import Backend
from backends.types import Health
from gateway.config import ModelConfig, Settings
from gateway.config_sources.reader import ConfigError
from gateway.middleware.drain import DrainState
from gateway.registry import Registry
from gateway.telemetry.telemetry import Telemetry
from gateway.version import gateway_version

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_CLOSE_TIMEOUT_S = 10.0


class Services:
    """What the application is made of. Built by `build_services`, lives as long as the server.

    Args:
        backends: by public model name.
        starters: what loads each backend; a backend without one is ready at once.
    """

    def __init__(
        self, settings: Settings, backends: dict[str, Backend], starters: dict[str, Callable[[], Awaitable[None]]]
    ) -> None:
        self.settings = settings
        self.registry = Registry(backends)
        self.telemetry = Telemetry(backends, version=gateway_version())
        self.drain = DrainState()
        self._starters = starters
        self._failures: dict[str, str] = {}

    async def start(self) -> dict[str, Health]:
        """Load all models, side by side, and return how each one is once none loads any more. Never raises for a model."""
        await asyncio.gather(*(self._start_one(name, start) for name, start in self._starters.items()))
        while True:
            healths = await self.healths()
            if all(health.state != "loading" for health in healths.values()):
                return healths
            await asyncio.sleep(_POLL_S)

    async def healths(self) -> dict[str, Health]:
        """Say how each model is, by public name."""
        healths = {}
        for name in self.registry.names():
            if name in self._failures:
                healths[name] = Health(state="failed", detail=self._failures[name])
            else:
                healths[name] = await self.registry.resolve(name).health()
        return healths

    async def close(self) -> None:
        """Close all backends, last built first, each within 10 s; running requests fail with `Unavailable`."""
        for backend in reversed(self.registry.backends()):
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
        ConfigError: a model asks for an engine that is not installed.
    """
    backends: dict[str, Backend] = {}
    starters: dict[str, Callable[[], Awaitable[None]]] = {}
    for name, model in settings.models.items():
        backends[name] = _build_backend(name, model, starters)
    return Services(settings, backends, starters)


def _build_backend(name: str, model: ModelConfig, starters: dict[str, Callable[[], Awaitable[None]]]) -> Backend:
    if isinstance(model, FakeModel):
        return FakeBackend(name, model)
    try:
        from edge.engine import EdgeBackend
    except ModuleNotFoundError as error:
        missing = f"models.{name}: GGUF models need {error.name}, which is not installed. Run: pip install 'baton-llm[edge]'"
        raise ConfigError([missing]) from error

    backend = EdgeBackend(name, model)
    starters[name] = backend.start
    return backend
