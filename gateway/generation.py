"""What one configuration makes of the backends: the router, the catalog, the queues and the dispatch in front of them.

A reload makes a new generation around the backends that stay. It shares with the one before whatever has not changed: queues,
deployments and routes, and with them who waits, what runs, which breakers are open and how far a canary is. A request keeps the
generation in which it came.
"""

from collections.abc import Mapping
from typing import Self

from backends.child.config import ChildConfig
from backends.protocol import Backend
from gateway.admission.config import AdmissionConfig
from gateway.admission.queue import Queue
from gateway.config import Settings
from gateway.dispatch.catalog import Catalog
from gateway.dispatch.dispatch import Dispatch
from gateway.limits.limiter import Limiter
from gateway.routing.router import Router
from gateway.telemetry.telemetry import Telemetry


class Generation:
    """All of it. Starts nothing.

    Args:
        backends: by configured name.
        previous: the generation that this one follows.

    Attributes:
        failures: why backends could not be started, by configured name.
    """

    def __init__(
        self,
        settings: Settings,
        backends: Mapping[str, Backend],
        limiter: Limiter,
        telemetry: Telemetry,
        previous: Self | None = None,
    ) -> None:
        self.settings = settings
        self.backends = dict(backends)
        self.failures: dict[str, str] = {}
        self.router: Router = Router(
            settings.routes,
            backends,
            breaker=settings.breaker,
            retry=settings.retries,
            health=settings.health,
            series=telemetry.upstream,
            previous=previous.router if previous is not None else None,
        )
        self.catalog = Catalog(self.router, backends)
        self._bounds = {name: _queue_config(settings, name) for name in self.router.names()}
        known = previous.queues if previous is not None else {}
        self.queues: dict[str, Queue] = {
            name: known[name] if previous is not None and previous._bounds.get(name) == bounds else Queue(bounds)
            for name, bounds in self._bounds.items()
        }
        self.dispatch = Dispatch(self.router, self.catalog, self.queues, limiter, telemetry, settings.prices)

    def names(self) -> set[str]:
        """Every name that may be a label of metrics."""
        return {*self.backends, *self.router.names()}


def _queue_config(settings: Settings, name: str) -> AdmissionConfig:
    """The queue of a public name. An engine of our own is kept just busy, so that the order is decided here."""
    config = settings.queues.get(name, settings.queue)
    model = settings.models.get(name)
    if config.max_running or name in settings.routes or not isinstance(model, ChildConfig):
        return config
    # As many again as fit, where its own queue has room: when all slots come free in one step the next ones must be there.
    ahead = min(model.queue, model.slots)
    waiting = config.max_waiting if name in settings.queues else model.queue - ahead
    return AdmissionConfig(max_running=model.slots + ahead, max_waiting=waiting, max_wait_s=config.max_wait_s)
