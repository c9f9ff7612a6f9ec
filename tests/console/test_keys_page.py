"""The page of keys as operators use it: real browser, scripted gateway."""

import time

import pytest
from admin_window import AdminPages
from scripted_admin import NOW, Script, key
from webdriver import KEYS

LIMITS = {"requests_per_minute": 60, "tokens_per_minute": 20000, "concurrency": 4, "budget_usd": 2.5, "budget_period": "day"}
MEMORY = "JSON.stringify([Object.values(sessionStorage), Object.values(localStorage)])"


@pytest.fixture
def some(script: Script) -> Script:
    script.keys = [
        key(1, "ops", is_admin=True, last_used_at=int(time.time()) - 7300),
        key(2, "search", models=["a", "b", "c", "d", "e"], allowance=LIMITS, priority="interactive", weight=0.5),
        key(3, "intern", state="revoked", revoked_at=NOW),
        key(4, "booth", state="expired", expires_at=NOW - 10),
    ]
    return script


def fill(admin: AdminPages, **values: str) -> None:
    for name, value in values.items():
        admin.browser.type(f"#new-key [name={name}]", value)


def create(admin: AdminPages, **values: str) -> None:
    admin.browser.click("#create-key")
    fill(admin, **values)
    admin.browser.click("#new-key .strong")


def secret(admin: AdminPages) -> str:
    return admin.browser.text("#created code")


def test_keys_that_work_come_first_and_the_newest_before_the_others(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    limits = "60 requests/min, 20K tokens/min, 4 at once, $2.50 a day"
    assert admin.rows("#key-list") == [
        ["search sk-baton-00000002…", "search", "a, b, c and 2 more", "interactive × 0.5", limits, "never", "active", "Revoke"],
        ["ops admin sk-baton-00000001…", "ops", "all", "standard", "none", "2 h ago", "active", "Revoke"],
        ["booth sk-baton-00000004…", "booth", "all", "standard", "none", "never", "expired", ""],
        ["intern sk-baton-00000003…", "intern", "all", "standard", "none", "never", "revoked", ""],
    ]
    assert admin.browser.text("#key-count") == "4 keys"
    assert admin.browser.console_messages() == []


def test_finding_a_key(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    admin.browser.type("#find-key", "SEAR")
    assert [row[0].split()[0] for row in admin.rows("#key-list")] == ["search"]
    assert admin.browser.text("#key-count") == "1 key"
    admin.browser.type("#find-key", "x")
    assert admin.rows("#key-list") == [["No key is like that."]]


def test_long_list_is_cut_and_says_so(admin: AdminPages, script: Script) -> None:
    script.keys = [key(n, f"name {n}") for n in range(230)]
    admin.open_keys()
    assert len(admin.rows("#key-list")) == 200
    assert admin.browser.text("#key-count") == "The first 200 of 230 keys"


def test_new_key_is_shown_once_and_copied(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    create(admin, name="alice")
    admin.browser.wait("the key", lambda: secret(admin))
    assert some.asked == [("POST", "/admin/keys", {"name": "alice", "priority": "standard", "is_admin": False})]
    assert admin.browser.text("#h-created") == "The key of alice"
    admin.browser.wait("the list", lambda: admin.rows("#key-list")[0][0].startswith("alice"))
    admin.browser.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    admin.browser.click("#copy-key")
    admin.browser.wait("the tick", lambda: admin.browser.js("document.querySelector('#copy-key[data-done]')"))
    assert admin.browser.js("navigator.clipboard.readText()") == secret(admin)
    admin.browser.click("#created-done")
    assert secret(admin) == ""
    assert not admin.browser.js("document.getElementById('created').checkVisibility()")
    assert "secret-rest" not in admin.browser.js("document.documentElement.outerHTML")
    assert "secret-rest" not in admin.browser.js(MEMORY)


def test_everything_that_can_be_set_is_sent(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    admin.browser.click("#create-key")
    fill(admin, name="ci", tenant="team.a", models="chat, team/embed,", weight="0.5", days="30", concurrency="2")
    fill(admin, requests_per_minute="60", tokens_per_minute="1000", budget_usd="1.5", priority="batch", budget_period="day")
    admin.browser.click("#new-key [name=is_admin]")
    admin.browser.click("#new-key .strong")
    admin.browser.wait("the key", lambda: secret(admin))
    body = some.asked[0][2]
    assert abs(body.pop("expires_at") - time.time() - 30 * 86400) < 10
    limits = {"requests_per_minute": 60, "tokens_per_minute": 1000, "concurrency": 2, "budget_usd": 1.5, "budget_period": "day"}
    assert body == {
        "name": "ci",
        "tenant": "team.a",
        "models": ["chat", "team/embed"],
        "priority": "batch",
        "weight": 0.5,
        "is_admin": True,
        "allowance": limits,
    }


def test_impossible_values_are_pointed_out_and_not_sent(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    create(admin, name="alice", tenant="no spaces here")
    assert admin.browser.js("document.activeElement.name") == "tenant"
    assert admin.is_open("#new-key")
    assert some.asked == []


def test_refused_key_keeps_the_form_and_says_why(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    some.refusal = (400, "The store of keys is full: 10000 keys.", "store_full")
    create(admin, name="alice")
    admin.browser.wait("the reason", lambda: admin.browser.text("#new-key-error"))
    assert admin.browser.text("#new-key-error") == "The store of keys is full: 10000 keys."
    assert admin.browser.js("document.querySelector('#new-key [name=name]').value") == "alice"
    some.refusal = None
    admin.browser.click("#new-key .strong")
    admin.browser.wait("the key", lambda: secret(admin))
    assert not admin.is_open("#new-key")


@pytest.mark.parametrize("how", ["button", "escape"])
def test_form_can_be_left_and_is_empty_next_time(admin: AdminPages, some: Script, how: str) -> None:
    admin.open_keys()
    admin.browser.click("#create-key")
    fill(admin, name="alice")
    if how == "button":
        admin.browser.click("#new-key .plain")
    else:
        admin.browser.press(KEYS["escape"])
    assert not admin.is_open("#new-key")
    assert some.asked == []
    admin.browser.click("#create-key")
    assert admin.browser.js("document.querySelector('#new-key [name=name]').value") == ""


def test_first_key_is_proposed_as_an_admin_key_and_used_from_then_on(admin: AdminPages, script: Script) -> None:
    admin.open_keys()
    assert admin.rows("#key-list") == [["There is no key yet."]]
    create(admin, name="ops")
    admin.browser.wait("the list", lambda: admin.rows("#key-list")[0][0].startswith("ops"))
    assert script.asked[0][2]["is_admin"] is True
    assert script.bearers[-1] == f"Bearer {secret(admin)}"


def test_only_the_first_key_is_proposed_as_an_admin_key(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    admin.browser.click("#create-key")
    assert not admin.browser.js("document.querySelector('#new-key [name=is_admin]').checked")
    assert not admin.browser.js("document.getElementById('first-key').checkVisibility()")


def test_revoking_asks_first_and_cannot_be_done_twice(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    admin.browser.click("[aria-label='Revoke search']")
    assert admin.browser.text("#confirm-title") == "Revoke search?"
    admin.browser.press(KEYS["escape"])
    assert some.asked == []
    admin.browser.click("[aria-label='Revoke search']")
    admin.browser.click("#confirm-yes")
    admin.browser.wait("the end of the key", lambda: admin.rows("#key-list")[-1][-2:] == ["revoked", ""])
    assert admin.rows("#key-list")[-1][0].startswith("search")
    assert some.asked == [("DELETE", "key_0000000000000002", None)]
    assert admin.toast() == "search is revoked."
    assert admin.browser.js("document.activeElement.id") == "find-key"


def test_revoking_the_key_in_use_is_warned_of(admin: AdminPages, some: Script) -> None:
    admin.open("chat")
    admin.browser.type("#settings [name=key]", "sk-baton-00000001-mine")
    admin.go("keys")
    admin.browser.wait("the keys", lambda: admin.browser.text("#key-count"))
    admin.browser.click("[aria-label='Revoke ops']")
    assert admin.browser.text("#confirm-text").endswith("It is the key that this page uses.")


def test_failed_revocation_is_said_so(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    admin.browser.click("[aria-label='Revoke ops']")
    some.refusal = (503, "The key store is down. Try again in a moment.", "key_store_unavailable")
    admin.browser.click("#confirm-yes")
    admin.browser.wait("the trouble", lambda: admin.toast() == "The key store is down. Try again in a moment.")
    admin.browser.wait("the notice", admin.gate)
    some.refusal = None
    admin.browser.click("#admin-keys .gate button")
    admin.browser.wait("the list", lambda: admin.gate() == "" and len(admin.rows("#key-list")) == 4)


def test_refused_key_is_said_so(admin: AdminPages, some: Script) -> None:
    some.refusal = (403, "This API key is not an admin key.", "admin_key_required")
    admin.open("keys")
    admin.browser.wait("the notice", admin.gate)
    assert admin.gate().startswith("An admin key is needed This API key is not an admin key.")
    assert not admin.browser.js("document.getElementById('create-key').checkVisibility()")


def test_names_never_become_markup(admin: AdminPages, script: Script) -> None:
    name = "<img src=x onerror=\"document.title='owned'\">"
    script.keys = [key(1, name)]
    admin.open_keys()
    assert admin.rows("#key-list")[0][0].startswith(name)
    assert admin.browser.js("document.title") == "Keys – Baton"


@pytest.mark.parametrize(("width", "height"), [(390, 844), (320, 568)])
def test_phone_never_scrolls_sideways(admin: AdminPages, some: Script, width: int, height: int) -> None:
    admin.browser.viewport(width, height, phone=True)
    some.keys.append(key(9, "x" * 128, tenant="y" * 64, models=["z" * 128]))
    admin.open_keys()
    assert admin.fits()
    admin.browser.click("#create-key")
    assert admin.fits()
    fill(admin, name="n" * 100)
    admin.browser.js("document.querySelector('#new-key .strong').scrollIntoView()")
    admin.browser.click("#new-key .strong")
    admin.browser.wait("the key", lambda: secret(admin))
    assert admin.fits()


def test_every_control_has_a_name(admin: AdminPages, some: Script) -> None:
    admin.open_keys()
    assert admin.unnamed_controls() == []
    admin.browser.click("#create-key")
    assert admin.unnamed_controls() == []
