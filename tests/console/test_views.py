"""The three views of the console and the addresses that lead to them."""

from admin_window import AdminPages
from console_window import Console
from scripted_admin import Script
from webdriver import KEYS

SHOWN = "[...document.querySelectorAll('main')].filter((main) => main.checkVisibility()).map((main) => main.dataset.view)"
CURRENT = "[...document.querySelectorAll('#views [aria-current=page]')].map((link) => link.textContent)"


def where(pages: AdminPages | Console) -> tuple[list[str], list[str], str]:
    browser = pages.browser
    return browser.js(SHOWN), browser.js(CURRENT), browser.js("document.title")


def test_links_lead_to_views_and_back(admin: AdminPages) -> None:
    admin.open("")
    assert where(admin) == (["chat"], ["Chat"], "Baton")
    admin.go("dashboard")
    assert where(admin) == (["dashboard"], ["Dashboard"], "Dashboard – Baton")
    admin.go("keys")
    assert where(admin) == (["keys"], ["Keys"], "Keys – Baton")
    admin.browser.js("history.back()")
    admin.browser.wait("the view before", lambda: where(admin)[1] == ["Dashboard"])


def test_an_address_opens_its_view_and_an_unknown_one_the_chat(admin: AdminPages) -> None:
    admin.open("keys")
    assert where(admin)[0] == ["keys"]
    for name in ("nothing", "constructor", "__proto__"):
        admin.browser.js("[location.hash = arguments[0]]", f"#/{name}")
        admin.browser.wait("the chat", lambda: where(admin)[0] == ["chat"])


def test_what_belongs_to_the_chat_is_only_there(admin: AdminPages) -> None:
    admin.open("dashboard")
    parts = "['.picker', '#clear', '#toggle', '#panel'].map((part) => document.querySelector(part).checkVisibility())"
    assert admin.browser.js(parts) == [False] * 4
    admin.go("chat")
    admin.browser.wait("the chat's parts", lambda: admin.browser.js(parts) == [True] * 4)


def test_answer_goes_on_while_another_view_is_shown(console: Console) -> None:
    browser = console.browser
    console.choose("endless")
    console.send("Go on")
    browser.wait("some text", lambda: console.answers() and console.answers()[-1])
    browser.click("#views a[href='#/keys']")
    browser.press(KEYS["escape"])
    assert console.is_answering()
    browser.click("#views a[href='#/chat']")
    before = len(console.answers()[-1])
    browser.wait("more text", lambda: len(console.answers()[-1]) > before)


def test_leaving_the_chat_with_its_panel_open_on_a_phone_locks_nothing(admin: AdminPages) -> None:
    admin.browser.viewport(390, 844, phone=True)
    admin.open("keys")
    admin.go("chat")
    admin.browser.click("#toggle")
    admin.browser.js("history.back()")
    admin.browser.wait("the keys", lambda: where(admin)[0] == ["keys"])
    admin.go("chat")
    admin.browser.click("#prompt")


def test_key_that_is_entered_once_serves_all_views(admin: AdminPages, script: Script) -> None:
    admin.open("chat")
    admin.browser.type("#settings [name=key]", "the-one-key")
    admin.go("dashboard")
    admin.browser.wait("the figures", lambda: admin.status() == "Live")
    admin.go("keys")
    admin.browser.wait("the keys", lambda: admin.browser.text("#key-count"))
    assert set(script.bearers) == {"Bearer the-one-key"}


def test_phone_shows_all_views_in_its_head(admin: AdminPages) -> None:
    for width in (390, 320):
        admin.browser.viewport(width, 700, phone=True)
        admin.open("chat")
        assert admin.fits()
        admin.go("dashboard")
        admin.go("keys")
