"""/admin/keys behind its authentication, as a client meets it."""

import logging
from collections.abc import AsyncIterator
from hashlib import sha256

import httpx
import pytest
from litestar import Litestar, Request, get
from litestar.di import Provide

from gateway.errors import EXCEPTION_HANDLERS
from gateway.keys.manager import KeyManager
from gateway.keys.ring import KeyRing
from gateway.keys.static import static_identities
from gateway.middleware.auth import Auth
from gateway.routes.admin_keys import create_key, list_keys, retrieve_key, revoke_key

ADMIN = {"authorization": "Bearer admin"}


@get("/v1/whoami")
async def whoami(request: Request) -> dict[str, str]:
    return {"tenant": request.scope["state"]["identity"].tenant}


def application(store, clock, admin_keys=(b"admin",)):
    digests = [sha256(key).digest() for key in admin_keys]
    ring = KeyRing(store, static_identities((), digests), now=clock)
    manager = KeyManager(store, ring, now=clock)
    app = Litestar(
        [create_key, list_keys, retrieve_key, revoke_key, whoami],
        dependencies={"key_manager": Provide(lambda: manager, sync_to_thread=False)},
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        logging_config=None,
    )
    return ring, Auth(app, ring)


@pytest.fixture
async def client(switch, clock) -> AsyncIterator[httpx.AsyncClient]:
    ring, app = application(switch, clock)
    await ring.refresh()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client


async def test_created_key_works_at_once_and_revoked_key_no_longer(client):
    created = (await client.post("/admin/keys", json={"name": "alice", "tenant": "team"}, headers=ADMIN)).json()
    mine = {"authorization": f"Bearer {created['key']}"}
    assert (await client.get("/v1/whoami", headers=mine)).json() == {"tenant": "team"}
    assert (await client.get("/admin/keys", headers=mine)).status_code == 403
    revoked = await client.delete(f"/admin/keys/{created['id']}", headers=ADMIN)
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    assert (await client.get("/v1/whoami", headers=mine)).status_code == 401


async def test_key_is_told_once_and_what_was_asked_for_always(client, clock):
    asked = {
        "name": "ci",
        "tenant": "team",
        "models": ["small"],
        "priority": "batch",
        "weight": 0.5,
        "allowance": {
            "requests_per_minute": 60,
            "tokens_per_minute": 0,
            "concurrency": 2,
            "budget_usd": 1.5,
            "budget_period": "day",
        },
        "is_admin": False,
        "expires_at": int(clock.now) + 100,
    }
    created = (await client.post("/admin/keys", json=asked, headers=ADMIN)).json()
    key = created.pop("key")
    assert {name: created[name] for name in asked} == asked
    assert created["prefix"] == key[:17]
    assert (created["object"], created["state"], created["created_at"]) == ("key", "active", int(clock.now))
    listed = await client.get("/admin/keys", headers=ADMIN)
    assert listed.json() == {"object": "list", "data": [created]}
    one = await client.get(f"/admin/keys/{created['id']}", headers=ADMIN)
    assert one.json() == created
    digest = sha256(key.encode())
    for text in (listed.text, one.text):
        assert key[17:] not in text
        assert digest.hexdigest() not in text
    clock.now += 100
    assert (await client.get(f"/admin/keys/{created['id']}", headers=ADMIN)).json()["state"] == "expired"


async def test_admin_key_can_be_a_stored_one(client):
    created = (await client.post("/admin/keys", json={"name": "ops", "is_admin": True}, headers=ADMIN)).json()
    assert (await client.get("/admin/keys", headers={"x-api-key": created["key"]})).status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"name": "k", "nam": 1}, "nam"),
        ({"name": "k", "models": []}, "models"),
        ({"name": "k", "models": [1]}, "models[0]"),
        ({"name": "k", "tenant": "a b"}, "tenant"),
        ({"name": "k", "priority": "urgent"}, "priority"),
        ({"name": "k", "weight": 0}, "weight"),
        ({"name": "k", "allowance": {"concurrency": -1}}, "allowance.concurrency"),
        ({"name": "k", "allowance": {"rpm": 1}}, "allowance.rpm"),
        ({"name": "k", "expires_at": 5}, "expires_at"),
        ({"name": "k", "expires_at": "30d"}, "expires_at"),
        ({"name": "k", "is_admin": "yes"}, "is_admin"),
    ],
)
async def test_wrong_body_is_refused_by_field(client, body, param):
    response = await client.post("/admin/keys", json=body, headers=ADMIN)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert (await client.get("/admin/keys", headers=ADMIN)).json()["data"] == []


@pytest.mark.parametrize("key_id", ["key_0123456789abcdef", "ids", "key_", "key_0123456789ABCDEF", "x" * 500, "%2e%2e"])
async def test_unknown_key_is_not_found(client, key_id):
    for method in ("GET", "DELETE"):
        response = await client.request(method, f"/admin/keys/{key_id}", headers=ADMIN)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "key_not_found")


@pytest.mark.parametrize("path", ["/admin/keys", "//admin/keys", "/admin//keys", "/admin/keys/"])
async def test_no_spelling_of_the_path_gets_around_the_admin_key(client, path):
    created = (await client.post("/admin/keys", json={"name": "alice"}, headers=ADMIN)).json()
    url = httpx.URL("http://localhost").copy_with(raw_path=path.encode())
    for headers, status in (({}, 401), ({"x-api-key": created["key"]}, 403), (ADMIN, 200)):
        assert (await client.get(url, headers=headers)).status_code == status


async def test_store_that_is_down_is_said_so(client, switch):
    switch.down = True
    key_id = "key_0123456789abcdef"
    for method, path in (("POST", ""), ("GET", ""), ("GET", f"/{key_id}"), ("DELETE", f"/{key_id}")):
        body = {"name": "k"} if method == "POST" else None
        response = await client.request(method, f"/admin/keys{path}", json=body, headers=ADMIN)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "key_store_unavailable")
        assert response.headers["retry-after"] == "2"


async def test_without_keys_the_first_admin_key_is_made_from_this_machine_and_closes_the_door(switch, clock):
    ring, app = application(switch, clock, admin_keys=())
    await ring.refresh()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        created = (await client.post("/admin/keys", json={"name": "ops", "is_admin": True})).json()
        assert (await client.get("/admin/keys")).status_code == 401
        assert (await client.get("/admin/keys", headers={"x-api-key": created["key"]})).status_code == 200


async def test_logs_hold_ids_and_no_keys(client, caplog):
    caplog.set_level(logging.DEBUG)
    created = (await client.post("/admin/keys", json={"name": "alice"}, headers=ADMIN)).json()
    await client.get("/v1/whoami", headers={"x-api-key": created["key"]})
    await client.delete(f"/admin/keys/{created['id']}", headers=ADMIN)
    assert caplog.text.count(created["id"]) >= 2
    assert created["key"][17:] not in caplog.text
