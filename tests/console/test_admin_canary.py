"""POST /admin/canary/{route}: what an operator may decide, and what is refused."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from admin_app import ADMIN, USER, AdminApp, admin_app

from gateway.routing.canary import Canary


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AdminApp]:
    async with admin_app(tmp_path) as app:
        yield app


def canary(app: AdminApp, route: str = "chat") -> Canary:
    found = app.services.router.resolve(route).canary
    assert found is not None
    return found


async def order(app: AdminApp, body: Any, route: str = "chat") -> httpx.Response:
    return await app.client.post(f"/admin/canary/{route}", json=body, headers=ADMIN)


def error(response: httpx.Response) -> tuple[int, str, str]:
    told = response.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    return response.status_code, told["param"], told["code"]


@pytest.mark.parametrize(
    ("bodies", "state", "percent"),
    [
        ([{"action": "promote"}], "promoted", 100),
        ([{"action": "pause"}], "paused", 10),
        ([{"action": "pause"}, {"action": "resume"}], "running", 10),
        ([{"action": "rollback"}], "rolled_back", 0),
        ([{"action": "rollback"}, {"action": "resume"}], "running", 10),
        ([{"action": "set", "percent": 33.5}], "paused", 33.5),
        ([{"action": "set", "percent": 0}, {"action": "resume"}], "running", 10),
        ([{"action": "rollback"}, {"action": "set", "percent": 5}, {"action": "promote"}], "promoted", 100),
        ([{"action": "promote"}, {"action": "rollback"}], "rolled_back", 0),
    ],
)
async def test_orders_are_carried_out_and_answered_with_the_canary(
    app: AdminApp, bodies: list[dict[str, Any]], state: str, percent: float
) -> None:
    for body in bodies:
        response = await order(app, body)
        assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["object"], answer["route"], answer["deployment"]) == ("canary", "chat", "new")
    assert (answer["state"], answer["percent"]) == (state, percent) == (canary(app).state, canary(app).percent)
    assert canary(app, "team/chat").percent == 10


@pytest.mark.parametrize("route", ["team/chat", "team%2Fchat"])
async def test_a_name_may_contain_slashes(app: AdminApp, route: str) -> None:
    assert (await order(app, {"action": "pause"}, route)).json()["route"] == "team/chat"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "action", "missing_required_parameter"),
        ({"action": "delete"}, "action", "invalid_value"),
        ({"action": None}, "action", "invalid_type"),
        ({"action": "pause", "force": True}, "force", "unknown_parameter"),
        ({"action": "set"}, "percent", "missing_required_parameter"),
        ({"action": "set", "percent": 101}, "percent", "invalid_value"),
        ({"action": "set", "percent": -0.1}, "percent", "invalid_value"),
        ({"action": "set", "percent": "5"}, "percent", "invalid_type"),
        ({"action": "promote", "percent": 100}, "percent", "invalid_value"),
        ([], None, "invalid_type"),
    ],
)
async def test_a_wrong_body_changes_nothing_and_is_refused_by_field(app: AdminApp, body: Any, param: str, code: str) -> None:
    assert error(await order(app, body)) == (400, param, code)
    assert (canary(app).state, canary(app).percent) == ("running", 10)


async def test_the_possible_actions_are_named(app: AdminApp) -> None:
    message = (await order(app, {"action": "delete"})).json()["error"]["message"]
    assert "promote, pause, resume, rollback, set" in message


async def test_a_body_that_is_no_json_is_refused(app: AdminApp) -> None:
    response = await app.client.post("/admin/canary/chat", content=b"action=promote", headers=ADMIN)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(("route", "code"), [("nothing", "route_not_found"), ("plain", "canary_not_found")])
async def test_a_route_that_is_unknown_or_has_no_canary_is_not_found(app: AdminApp, route: str, code: str) -> None:
    assert error(await order(app, {"action": "pause"}, route)) == (404, "route", code)


async def test_what_was_rolled_back_meanwhile_is_not_promoted(app: AdminApp) -> None:
    canary(app).rollback("5 of 20 attempts failed.")
    for action in ("promote", "pause"):
        response = await order(app, {"action": action})
        assert error(response) == (409, "action", "canary_state")
        assert "5 of 20 attempts failed." in response.json()["error"]["message"]
    assert (canary(app).state, canary(app).percent) == ("rolled_back", 0)


@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_what_was_promoted_neither_pauses_nor_resumes(app: AdminApp, action: str) -> None:
    canary(app).promote()
    assert error(await order(app, {"action": action})) == (409, "action", "canary_state")
    assert canary(app).percent == 100


async def test_asking_again_for_what_is_so_changes_nothing(app: AdminApp) -> None:
    canary(app).rollback("It was slow.")
    assert (await order(app, {"action": "rollback"})).json()["reason"] == "It was slow."
    canary(app).promote()
    canary(app).trial.succeeded(0.1)
    assert (await order(app, {"action": "promote"})).json()["attempts"] == 1


async def test_only_admin_keys_decide(app: AdminApp) -> None:
    for headers, status in (({}, 401), (USER, 403)):
        response = await app.client.post("/admin/canary/chat", json={"action": "promote"}, headers=headers)
        assert response.status_code == status
    assert canary(app).state == "running"


async def test_who_decided_what_is_logged(app: AdminApp, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await order(app, {"action": "pause"})
    assert "route chat: pause of the canary new, by " in caplog.text
