"""GET /admin/live on real services."""

import sqlite3
from pathlib import Path

import msgspec
from admin_app import ADMIN, USER, AdminApp, admin_app

from gateway.routes.admin_live import check_sqlite
from gateway.routes.live_document import LiveDocument, StoreState
from gateway.store.sqlite import Database
from tests.redis_server import RedisServer


async def document(app: AdminApp) -> LiveDocument:
    response = await app.client.get("/admin/live", headers=ADMIN)
    assert (response.status_code, response.headers["cache-control"]) == (200, "no-store")
    return msgspec.json.decode(response.content, type=LiveDocument)


async def test_everything_that_is_configured_is_there(tmp_path: Path) -> None:
    async with admin_app(tmp_path) as app:
        app.usage.add("key_a", "alice", 40, 0.25)
        live = await document(app)
    assert [one.name for one in live.deployments] == ["old", "new", "plain"]
    assert {(one.state, one.breaker, one.is_healthy, one.ttft_s) for one in live.deployments} == {
        ("ready", "closed", True, None)
    }
    assert [route.name for route in live.routes] == ["chat", "team/chat", "old", "new", "plain"]
    canary = live.routes[0].canary
    assert canary is not None
    assert (canary.deployment, canary.state, canary.percent) == ("new", "running", 10.0)
    assert (live.usage.keys[0].name, live.usage.keys[0].cost_usd) == ("alice", 0.25)
    assert not live.is_draining


async def test_only_admin_keys_get_in(tmp_path: Path) -> None:
    async with admin_app(tmp_path) as app:
        for headers, status in (({}, 401), (USER, 403), (ADMIN, 200)):
            assert (await app.client.get("/admin/live", headers=headers)).status_code == status


async def test_database_is_unused_then_up_and_looking_creates_nothing(tmp_path: Path) -> None:
    async with admin_app(tmp_path) as app:
        assert (await document(app)).stores == [StoreState(name="SQLite", state="unused", detail="Nothing was written yet.")]
        assert not app.services.stores.database.exists()
        await app.services.stores.database.migrate("test", (("CREATE TABLE t (x)",),))
        assert (await document(app)).stores == [StoreState(name="SQLite", state="up")]


async def test_database_that_is_none_is_down_and_the_rest_is_told(tmp_path: Path) -> None:
    (tmp_path / "baton.db").write_text("no database, but long enough to be looked at as one " * 20)
    async with admin_app(tmp_path) as app:
        live = await document(app)
    assert live.stores[0].state == "down"
    assert "baton.db" in live.stores[0].detail
    assert len(live.deployments) == 3


async def test_database_that_does_not_answer_is_down_within_a_second(tmp_path: Path) -> None:
    class Stuck(Database):
        async def read(self, work: object) -> object:  # type: ignore[override]
            raise TimeoutError

    database = Stuck(":memory:")
    assert await check_sqlite(database) == StoreState(name="SQLite", state="down", detail="No answer within 1 s.")


async def test_redis_is_up_and_down(tmp_path: Path) -> None:
    with RedisServer() as server:
        async with admin_app(tmp_path, server.url) as app:
            assert (await document(app)).stores[1] == StoreState(name="Redis", state="up")
    async with admin_app(tmp_path, server.url) as app:
        state = (await document(app)).stores[1]
    assert (state.name, state.state) == ("Redis", "down")


async def test_draining_is_told(tmp_path: Path) -> None:
    async with admin_app(tmp_path) as app:
        app.services.drain.draining = True
        assert (await document(app)).is_draining


async def test_sqlite_errors_do_not_escape() -> None:
    class Broken(Database):
        async def read(self, work: object) -> object:  # type: ignore[override]
            raise sqlite3.OperationalError("a broken file")

    assert (await check_sqlite(Broken(":memory:"))).detail == "a broken file"
