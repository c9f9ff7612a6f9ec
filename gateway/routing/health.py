"""Asks every deployment from time to time how it is, so that one that is dead gets no requests and one that is back gets them.

A backend with `check` is asked by it. Of another one its own `health` is believed: one that loads or failed is the last resort,
not forbidden, since a request is what makes some engines try again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from backends.errors import BackendError
from gateway.routing.config import HealthConfig
from gateway.routing.deployment import Checkable, Deployment
from gateway.routing.faults import is_fault

logger = logging.getLogger(__name__)

_SERVING = ("ready", "degraded")


class HealthMonitor:
    """One task per deployment. `sleep` waits for seconds."""

    def __init__(
        self,
        deployments: Iterable[Deployment],
        config: HealthConfig,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._watches = [Watch(deployment, config) for deployment in deployments]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; a second call has no effect."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._run(watch), name=f"health of {watch.deployment.name}") for watch in self._watches
            ]

    async def close(self) -> None:
        """End all tasks. May be called twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _run(self, watch: "Watch") -> None:
        while True:
            began_at = self._clock()
            await watch.look()
            await self._sleep(max(0.0, self._config.interval_s - (self._clock() - began_at)))


class Watch:
    """Over one deployment: remembers how the last checks went."""

    def __init__(self, deployment: Deployment, config: HealthConfig) -> None:
        self.deployment = deployment
        self._config = config
        self._failed = 0
        self._passed = 0

    async def look(self) -> None:
        """Ask once, and draw the conclusions. Raises nothing but cancellation."""
        backend = self.deployment.backend
        try:
            async with asyncio.timeout(self._config.timeout_s):
                if isinstance(backend, Checkable):
                    self._take(await _fault_of(backend))
                else:
                    self._believe((await backend.health()).state in _SERVING)
        except TimeoutError:
            self._take(f"no answer within {self._config.timeout_s:g} s")
        except Exception as error:
            # A fault of ours must not end the watch.
            logger.exception("the health check of %s broke", self.deployment.name)
            self._take(f"{type(error).__name__} in the check")

    def _take(self, fault: str) -> None:
        """Take the result of an active check; an empty `fault` is a passed one."""
        deployment = self.deployment
        if fault:
            self._failed, self._passed = self._failed + 1, 0
            if self._failed >= self._config.unhealthy_after and deployment.is_healthy:
                deployment.is_healthy = False
                logger.warning("deployment %s is unhealthy after %d checks: %s", deployment.name, self._failed, fault)
            return
        if self._failed:
            # Whatever opened the breaker, the deployment has come back since.
            deployment.breaker.recover()
        self._failed, self._passed = 0, self._passed + 1
        if self._passed >= self._config.healthy_after and not deployment.is_healthy:
            deployment.is_healthy = True
            logger.info("deployment %s is healthy again", deployment.name)

    def _believe(self, is_ready: bool) -> None:
        deployment = self.deployment
        if is_ready and not deployment.is_ready:
            deployment.breaker.recover()
        deployment.is_ready = is_ready


async def _fault_of(backend: Checkable) -> str:
    """What an active check finds wrong; empty when nothing. One that answers, but refuses, lives."""
    try:
        await backend.check()
    except BackendError as error:
        return error.message if is_fault(error) else ""
    return ""
