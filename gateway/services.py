"""The composition root: builds, starts and closes everything that one gateway holds, and changes it while it runs."""

import asyncio
import logging
import os
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from backends.errors import BackendError
from backends.protocol import Backend
from backends.types import Health
from gateway.admission.queue import Queue
from gateway.backends import Starter, build_backends
from gateway.batches.attempts import RunLine
from gateway.batches.batches import Batches
from gateway.config import Settings
from gateway.config_sources.reader import ConfigError
from gateway.dispatch.catalog import Catalog
from gateway.dispatch.dispatch import Dispatch
from gateway.generation import Generation
from gateway.middleware.drain import DrainState
from gateway.reload import BadConfiguration, Plan, ReloadBusy, Stamp, file_stamps
from gateway.retirement import Retirement, close_backends
from gateway.routing.router import Router
from gateway.snapshot import count_waiting, take_snapshot
from gateway.stores import Stores
from gateway.telemetry.build import TracingUnavailable, build_tracing
from gateway.telemetry.telemetry import Telemetry
from gateway.telemetry.tracing import Tracing
from gateway.version import gateway_version

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_NO_STAMPS: Mapping[str, Stamp] = MappingProxyType({})


class Services:
    """What the application is made of. Built by `build_services`, lives as long as the server.

    Args:
        backends: by configured name.
        starters: what loads each backend; a backend without one is ready at once.
        stamps: of the files that each model is read from.

    Attributes:
        generation: what the present configuration made. A request that needs several parts of it takes them from one
            generation, because a reload may come in between.
        run_line: answers one line of a batch as if a client had sent it; set by the application, None without one.
    """

    def __init__(
        self,
        settings: Settings,
        backends: Mapping[str, Backend],
        starters: Mapping[str, Starter],
        stamps: Mapping[str, Stamp] = _NO_STAMPS,
    ) -> None:
        self.stores = Stores(settings)
        self.telemetry = Telemetry((), version=gateway_version(), tracing=_tracing(settings))
        self.generation = Generation(settings, backends, self.stores.limiter, self.telemetry)
        self.telemetry.know(self.generation.names())
        self.telemetry.watch(
            lambda: take_snapshot(self.router, self.queues, self.stores.answers, self.stores.redis),
            lambda: count_waiting(self.queues),
        )
        self.drain = DrainState()
        self.batches = Batches(self.stores.database, settings.batches, identify=self.stores.ring.current)
        self.run_line: RunLine | None = None
        self._starters = dict(starters)
        self._stamps = stamps
        self._retirement = Retirement()
        self._is_open = False
        self._has_started = False

    @property
    def settings(self) -> Settings:
        """What is in force."""
        return self.generation.settings

    @property
    def backends(self) -> Mapping[str, Backend]:
        """By configured name."""
        return self.generation.backends

    @property
    def router(self) -> Router:
        """Where new requests are routed."""
        return self.generation.router

    @property
    def catalog(self) -> Catalog:
        """What is served now."""
        return self.generation.catalog

    @property
    def queues(self) -> Mapping[str, Queue]:
        """By public name, where new requests wait."""
        return self.generation.queues

    @property
    def dispatch(self) -> Dispatch:
        """Where new requests go."""
        return self.generation.dispatch

    async def open(self) -> None:
        """Read which keys there are, or where the store is down, begin to try. Before the first request: it would be refused.
        May be called twice."""
        if not self._is_open:
            self._is_open = True
            await self.stores.start()

    async def start(self) -> dict[str, Health]:
        """Load all models, side by side, and return how each one is once none loads any more. Never raises for a model."""
        await self.open()
        self.router.start()
        failures, backends = self.generation.failures, self.generation.backends
        await asyncio.gather(*(_start_one(name, start, failures) for name, start in self._starters.items()))
        healths = await _settled(backends, failures)
        self._has_started = True
        if self.run_line is not None:
            self.batches.start(self.run_line)
        return healths

    async def healths(self) -> dict[str, Health]:
        """Say how each model is, by configured name. What waits for admission here waits for the model too."""
        healths = await _healths(self.generation.backends, self.generation.failures)
        for name, health in healths.items():
            queued = count_waiting({name: self.queues[name]}) if name in self.queues else 0
            if queued:
                healths[name] = msgspec.structs.replace(health, waiting=health.waiting + queued)
        return healths

    async def stale(self, stamps: Mapping[str, Stamp]) -> set[str]:
        """Models that are not as their files are now, or that have failed."""
        changed = {name for name, stamp in stamps.items() if name in self._stamps and self._stamps[name] != stamp}
        return changed | {name for name, health in (await self.healths()).items() if health.state == "failed"}

    async def apply(self, plan: Plan) -> None:
        """Go over to another configuration, all or nothing: what is new is built and started first, and what is replaced is
        closed when its last request has ended.

        Raises:
            ConfigError: a model cannot be built.
            BadConfiguration: a model does not start.
            ReloadBusy: the models are still being started, the gateway drains, or too much of earlier reloads still runs.
        """
        if not self._has_started or self.drain.draining:
            raise ReloadBusy("The gateway is being started or stopped. Try again in a moment.", headers={"retry-after": "2"})
        self._retirement.demand_room()
        models = {name: plan.settings.models[name] for name in (*plan.added, *plan.changed)}
        # Loading certificates takes a while.
        fresh, starters = await asyncio.to_thread(build_backends, models)
        try:
            await _start_all(fresh, starters)
            self._switch(plan, fresh)
        except BaseException:
            await asyncio.shield(close_backends(fresh.values()))
            raise

    async def close(self) -> None:
        """Close all backends, last built first, each within 10 s; running requests fail with `Unavailable`."""
        await self.batches.close()
        for queue in self.queues.values():
            queue.close()
        await self._retirement.close()
        await close_backends(self.backends.values())
        await self.router.close()
        await self.stores.close()
        if self.telemetry.tracing is not None:
            await self.telemetry.tracing.close()

    def _switch(self, plan: Plan, fresh: Mapping[str, Backend]) -> None:
        """From here on, new requests meet the new generation. Nothing in here waits."""
        old, kept = self.generation, self.generation.backends
        backends = {name: fresh[name] if name in fresh else kept[name] for name in plan.settings.models}
        new = Generation(plan.settings, backends, self.stores.limiter, self.telemetry, previous=old)
        self.telemetry.know(new.names())
        self.stores.follow(plan.settings)
        self.generation, self._stamps = new, plan.stamps
        new.router.start()
        gone = [backend for name, backend in kept.items() if backends.get(name) is not backend]
        self._retirement.add(old, gone, self.drain.turn())


def build_services(settings: Settings) -> Services:
    """Build every backend of a configuration, without starting any.

    Raises:
        ConfigError: a model asks for an engine that is not installed, or a store for what is missing.
    """
    stamps = file_stamps(settings.models)
    backends, starters = build_backends(settings.models)
    return Services(settings, backends, starters, stamps)


def _tracing(settings: Settings) -> Tracing | None:
    try:
        return build_tracing(settings.telemetry, gateway_version(), os.environ)
    except TracingUnavailable as error:
        raise ConfigError([str(error)]) from error


async def _start_all(backends: Mapping[str, Backend], starters: Mapping[str, Starter]) -> None:
    """Raises BadConfiguration when one of them does not serve."""
    failures: dict[str, str] = {}
    await asyncio.gather(*(_start_one(name, start, failures) for name, start in starters.items()))
    healths = await _settled(backends, failures)
    mistakes = [
        f"models.{name}: did not start: {health.detail}"
        for name, health in healths.items()
        if health.state in ("failed", "stopped")
    ]
    if mistakes:
        raise BadConfiguration(mistakes)


async def _settled(backends: Mapping[str, Backend], failures: Mapping[str, str]) -> dict[str, Health]:
    """How each backend is once none loads any more."""
    while True:
        healths = await _healths(backends, failures)
        if all(health.state != "loading" for health in healths.values()):
            return healths
        await asyncio.sleep(_POLL_S)


async def _healths(backends: Mapping[str, Backend], failures: Mapping[str, str]) -> dict[str, Health]:
    return {
        name: Health(state="failed", detail=failures[name]) if name in failures else await backend.health()
        for name, backend in backends.items()
    }


async def _start_one(name: str, start: Starter, failures: dict[str, str]) -> None:
    try:
        await start()
    except BackendError as error:
        failures[name] = error.message
        logger.error("model %s did not start: %s", name, error.message)
    except Exception as error:
        failures[name] = f"{type(error).__name__} while starting"
        logger.exception("model %s did not start", name)
