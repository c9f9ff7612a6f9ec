"""The admin routes in front of real services, behind their authentication. Nothing listens: requests go in as ASGI."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import httpx
from litestar import Litestar
from litestar.di import Provide

from backends.fake import FakeModel
from gateway.config import ServerConfig, Settings
from gateway.errors import EXCEPTION_HANDLERS
from gateway.middleware.auth import Auth
from gateway.routes.admin_canary import steer_canary
from gateway.routes.admin_live import live_figures
from gateway.routing.config import CanaryConfig, Member, RouteConfig
from gateway.services import Services, build_services
from gateway.store.config import StoreConfig
from gateway.telemetry.usage import UsageToday

ADMIN = {"authorization": "Bearer admin"}
USER = {"authorization": "Bearer user"}


class AdminApp:
    """A client of the routes, and what is behind them."""

    def __init__(self, services: Services, usage: UsageToday, client: httpx.AsyncClient) -> None:
        self.services, self.usage, self.client = services, usage, client


def settings(folder: Path, redis_url: str = "") -> Settings:
    canary = CanaryConfig(deployment="new", steps=(10.0, 50.0, 100.0))
    digests = {name: frozenset({sha256(name.encode()).digest()}) for name in ("admin", "user")}
    return Settings(
        server=ServerConfig(),
        models={name: FakeModel() for name in ("old", "new", "plain")},
        routes={
            "chat": RouteConfig(deployments=(Member(model="old"),), canary=canary),
            "team/chat": RouteConfig(deployments=(Member(model="old"),), canary=canary),
        },
        store=StoreConfig(path=str(folder / "baton.db"), redis_url=redis_url),
        api_key_digests=digests["user"],
        admin_key_digests=digests["admin"],
    )


@asynccontextmanager
async def admin_app(folder: Path, redis_url: str = "") -> AsyncIterator[AdminApp]:
    """Build it, and close it."""
    services, usage = build_services(settings(folder, redis_url)), UsageToday()
    app = Litestar(
        [live_figures, steer_canary],
        dependencies={
            "services": Provide(lambda: services, sync_to_thread=False),
            "usage_today": Provide(lambda: usage, sync_to_thread=False),
        },
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        logging_config=None,
    )
    transport = httpx.ASGITransport(Auth(app, services.stores.ring))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield AdminApp(services, usage, client)
    await services.close()
