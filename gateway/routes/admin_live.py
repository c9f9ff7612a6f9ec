"""GET /admin/live: everything that the console's dashboard shows, asked for every two seconds while somebody looks.

Only admins get here (`gateway.middleware.auth`). Of a gateway with several workers it shows the one that answers.
"""

import asyncio
import sqlite3
from time import time

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import SkipValidation
from litestar.types import ASGIApp

from gateway.response import JSON_HEADERS, JsonReply
from gateway.routes.live_document import StoreState, build_live
from gateway.routes.operator import ServicesDependency
from gateway.store.errors import StoreDown
from gateway.store.redis import RedisStore
from gateway.store.sqlite import Database
from gateway.stores import Stores
from gateway.telemetry.usage import UsageToday

UsageTodayDependency = NamedDependency[SkipValidation[UsageToday]]

_STORE_TIMEOUT_S = 1.0
_NOT_KEPT = (b"cache-control", b"no-store")


@get("/admin/live")
async def live_figures(services: ServicesDependency, usage_today: UsageTodayDependency) -> ASGIApp:
    """Say how everything is now, and how it was in the last five minutes."""
    healths, states = await asyncio.gather(services.healths(), _check_stores(services.stores))
    document = build_live(
        at=time(),
        is_draining=services.drain.draining,
        series=services.telemetry.live.snapshot(),
        router=services.router.describe(),
        healths=healths,
        queues={name: queue.snapshot() for name, queue in services.queues.items()},
        usage=usage_today.list(),
        usage_since=usage_today.since,
        stores=states,
    )
    return JsonReply(msgspec.json.encode(document), [*JSON_HEADERS, _NOT_KEPT])


async def check_sqlite(database: Database) -> StoreState:
    """Ask the database something that it must read its file for; 1 s without an answer is none."""
    if not database.exists():
        return StoreState(name="SQLite", state="unused", detail="Nothing was written yet.")
    try:
        async with asyncio.timeout(_STORE_TIMEOUT_S):
            await database.read(lambda connection: connection.execute("SELECT count(*) FROM sqlite_schema").fetchall())
    except TimeoutError:
        return StoreState(name="SQLite", state="down", detail=f"No answer within {_STORE_TIMEOUT_S:g} s.")
    except (StoreDown, sqlite3.Error) as error:
        return StoreState(name="SQLite", state="down", detail=str(error))
    return StoreState(name="SQLite", state="up")


async def check_redis(redis: RedisStore) -> StoreState:
    """Ask the server for a sign of life; how long that may take is in its configuration."""
    try:
        await redis.call("PING")
    except StoreDown as error:
        return StoreState(name="Redis", state="down", detail=str(error))
    return StoreState(name="Redis", state="up")


async def _check_stores(stores: Stores) -> list[StoreState]:
    checks = [check_sqlite(stores.database)]
    if stores.redis is not None:
        checks.append(check_redis(stores.redis))
    return await asyncio.gather(*checks)
