"""Canaries on the dashboard: how they do, and what an operator decides."""

import pytest
from admin_window import AdminPages
from scripted_admin import CHAT, Script, canary, live

from gateway.routing.canary import CanaryView
from gateway.routing.views import RouteView

REASON = "31 of 214 attempts failed (14.5%), 6 of 1912 elsewhere (0.3%)."


def route(name: str = "chat", **values: object) -> RouteView:
    return RouteView(name=name, deployments=("llama-a",), canary=canary(**values))


def card(admin: AdminPages, number: int = 0) -> str:
    text = admin.browser.js(f"document.querySelectorAll('.canary')[{number}]?.innerText.replace(/\\s+/g, ' ') ?? ''")
    return str(text)


def usable(admin: AdminPages) -> list[str]:
    buttons = "[...document.querySelectorAll('.canary [data-act]')].filter((button) => button.ariaDisabled !== 'true')"
    return list(admin.browser.js(f"{buttons}.map((button) => button.textContent)"))


def test_canary_stands_beside_the_others(admin: AdminPages) -> None:
    admin.open_dashboard()
    assert card(admin) == (
        "chat running 25 % of the conversations go to llama-next Figure Canary Others Answers 214 1,912 Errors 0.4 % 0.3 % "
        "First token, p95 410 ms 390 ms Between tokens, p95 21 ms 20 ms Promote Pause Roll back"
    )
    assert admin.browser.js("document.querySelector('progress').value") == 25


def test_routes_without_canaries_have_no_such_section(admin: AdminPages, script: Script) -> None:
    script.live = live((RouteView(name="chat", deployments=("llama-a",)),))
    admin.open_dashboard()
    assert not admin.browser.js("document.getElementById('canaries').checkVisibility()")


@pytest.mark.parametrize(
    ("state", "buttons"),
    [
        ("running", ["Promote", "Pause", "Roll back"]),
        ("paused", ["Promote", "Resume", "Roll back"]),
        ("promoted", ["Roll back"]),
        ("rolled_back", ["Resume"]),
    ],
)
def test_only_what_fits_the_state_can_be_pressed(admin: AdminPages, script: Script, state: str, buttons: list[str]) -> None:
    script.live = live((route(state=state),))
    admin.open_dashboard()
    assert usable(admin) == buttons


def test_reason_of_a_rollback_is_shown(admin: AdminPages, script: Script) -> None:
    script.live = live((route(state="rolled_back", percent=0.0, reason=REASON),))
    admin.open_dashboard()
    assert REASON in card(admin)
    assert "rolled back 0 %" in card(admin)


def test_pause_is_sent_shown_at_once_and_keeps_the_focus(admin: AdminPages, script: Script) -> None:
    def order(name: str, body: dict[str, object]) -> CanaryView:
        script.live = live((route("team/chat", state="paused"),))
        return canary(state="paused")

    script.live = live((route("team/chat"),))
    script.on_order = order
    admin.open_dashboard()
    admin.browser.click(".canary [data-act=pause]")
    admin.browser.wait("the pause", lambda: "paused" in card(admin))
    assert script.asked == [("POST", "/team/chat", {"action": "pause"})]
    assert admin.toast() == "team/chat: llama-next climbs no further."
    assert admin.browser.js("document.activeElement.textContent") == "Resume"


def test_rollback_asks_nothing(admin: AdminPages, script: Script) -> None:
    script.on_order = lambda name, body: canary(state="rolled_back", percent=0.0)
    admin.open_dashboard()
    admin.browser.click(".canary [data-act=rollback]")
    admin.browser.wait("the rollback", lambda: script.asked)
    assert script.asked == [("POST", "/chat", {"action": "rollback"})]


def test_promotion_asks_first(admin: AdminPages, script: Script) -> None:
    script.on_order = lambda name, body: canary(state="promoted", percent=100.0)
    admin.open_dashboard()
    admin.browser.click(".canary [data-act=promote]")
    assert admin.browser.text("#confirm-title") == "Promote llama-next?"
    assert admin.browser.text("#confirm-text") == "All conversations of chat will go to it."
    admin.browser.click("#confirm .plain")
    assert script.asked == []
    admin.browser.click(".canary [data-act=promote]")
    admin.browser.click("#confirm-yes")
    admin.browser.wait("the promotion", lambda: script.asked == [("POST", "/chat", {"action": "promote"})])
    assert admin.toast() == "chat: llama-next gets everything now."


def test_what_was_rolled_back_while_the_question_stood_is_not_promoted(admin: AdminPages, script: Script) -> None:
    admin.open_dashboard()
    admin.browser.click(".canary [data-act=promote]")
    script.live = live((route(state="rolled_back", percent=0.0, reason=REASON),))
    admin.browser.wait("the news", lambda: REASON in card(admin))
    script.refusal = (409, "'promote' is not possible: the canary has been rolled back.", "canary_state")
    admin.browser.click("#confirm-yes")
    admin.browser.wait("the refusal", lambda: "rolled back" in admin.toast())


def test_canary_that_is_gone_disappears(admin: AdminPages, script: Script) -> None:
    script.live = live((route("a"), route("b")))
    admin.open_dashboard()
    assert (card(admin, 0)[0], card(admin, 1)[0]) == ("a", "b")
    script.live = live((route("b", percent=50.0), CHAT))
    admin.browser.wait("the other canary", lambda: card(admin, 0).startswith("b running 50 %"))
    assert card(admin, 1).startswith("chat")
