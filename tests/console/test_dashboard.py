"""The dashboard as operators use it: real browser, scripted figures."""

import time

import pytest
from admin_window import AdminPages
from scripted_admin import CHAT, Script, live, series
from webdriver import KEYS

from gateway.routing.views import RouteView
from gateway.telemetry.usage import KeyUsage

PHONES = [(390, 844), (320, 568)]
PLOTS = "[...document.querySelectorAll('.plot')]"


def test_figures_of_this_moment(admin: AdminPages) -> None:
    admin.open_dashboard()
    assert admin.card("requests") == "9.2 per second | 822 in the last minute"
    assert admin.card("errors") == "0 % | 0 of 822 in the last minute"
    assert admin.card("queue") == "3 waiting | 17 running"
    assert admin.card("tokens") == "718 per second | Generated, mean of 10 s"
    assert admin.card("ttft") == "p50 162 ms | p95 369 ms"
    assert admin.card("itl") == "p50 13 ms | p95 24 ms"


def test_what_is_not_known_is_a_dash(admin: AdminPages, script: Script) -> None:
    empty = dict.fromkeys(("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s"), [None] * 300)
    script.live = live(series={**series(), **empty, "requests": [0] * 300, "errors": [0] * 300}, usage=[], queues={})
    admin.open_dashboard()
    assert (admin.card("ttft"), admin.card("requests")) == ("p50 – | p95 –", "0 per second | 0 in the last minute")
    assert admin.rows("#usage") == [["No request has ended yet."]]


def test_page_loads_without_complaints_and_only_from_the_gateway(admin: AdminPages) -> None:
    admin.open_dashboard()
    assert admin.browser.console_messages() == []
    assert [one["url"] for one in admin.browser.requests(admin.url) if not one["url"].startswith(admin.url)] == []


def test_deployments_routes_keys_and_stores_are_listed(admin: AdminPages) -> None:
    admin.open_dashboard()
    assert admin.rows("#deployments") == [
        ["llama-a", "ready", "closed", "0.3 %", "5 of 16", "180 ms", "healthy"],
        ["llama-b", "failed no answer within 3 s", "open", "41 %", "0", "–", "unhealthy rests for 13 s"],
        ["llama-next", "degraded", "half open", "0.3 %", "2 of 16 1 waiting", "180 ms", "healthy"],
        ["embedder", "loading", "closed", "0 %", "0", "180 ms", "healthy"],
    ]
    assert admin.rows("#routes") == [
        ["chat", "llama-a, llama-b", "17 of 32", "3", "12"],
        ["embed", "embedder", "0", "0", "0"],
    ]
    assert admin.rows("#usage") == [
        ["search team key_00000000000000aa", "18.4K", "12.3M", "$41.50"],
        ["nightly batch key_00000000000000bb", "260", "988K", "$0.0312"],
        ["anonymous", "3", "120", "$0.00"],
    ]
    assert admin.browser.text("#since") == "Since 00:00 UTC"
    assert admin.browser.text("#stores") == "SQLiteupRedisdownredis://cache:6379: TimeoutError"


def test_keys_that_are_not_shown_are_one_row(admin: AdminPages, script: Script) -> None:
    script.live = live(usage=[KeyUsage(key_id=f"k{n}", name=f"key {n}", requests=1, tokens=9) for n in range(52)])
    admin.open_dashboard()
    rows = admin.rows("#usage")
    assert (len(rows), rows[-1]) == (51, ["all other keys", "2", "18", "$0.00"])


def test_figures_are_asked_for_every_two_seconds_and_change_in_place(admin: AdminPages, script: Script) -> None:
    admin.open_dashboard()
    admin.browser.js("[window.kept = document.querySelectorAll('#routes td')[4], kept.textContent]")
    asked, since = script.polls, time.monotonic()
    script.live = live(queues={}, series={**series(), "requests": [50] * 300})
    admin.browser.wait("new figures", lambda: admin.card("requests") == "50 per second | 3,000 in the last minute")
    admin.browser.wait("another request", lambda: script.polls >= asked + 2)
    assert 3 < time.monotonic() - since < 8
    assert admin.rows("#routes")[0][2:] == ["0", "0", "0"]
    assert admin.browser.js("kept.isConnected")


@pytest.mark.parametrize("how", ["hidden", "left"])
def test_nothing_is_asked_while_nobody_looks(admin: AdminPages, script: Script, how: str) -> None:
    admin.open_dashboard()
    show = "[Object.defineProperty(document, 'hidden', {value: %s, configurable: true}),"
    show += "document.dispatchEvent(new Event('visibilitychange'))]"
    if how == "hidden":
        admin.browser.js(show % "true")
    else:
        admin.go("chat")
    time.sleep(0.3)
    asked = script.polls
    time.sleep(2.5)
    assert script.polls == asked
    if how == "hidden":
        admin.browser.js(show % "false")
    else:
        admin.go("dashboard")
    admin.browser.wait("a request at once", lambda: script.polls > asked, seconds=1.5)


def test_charts_break_where_nothing_is_known_and_scale_to_round_numbers(admin: AdminPages) -> None:
    admin.open_dashboard()
    assert admin.browser.js("document.querySelector('#card-ttft .line-0').getAttribute('d').match(/M/g).length") == 2
    assert admin.browser.js("document.querySelector('#card-requests .line-0').getAttribute('d').match(/M/g).length") == 1
    tops = admin.browser.js(f"{PLOTS}.map((plot) => plot.innerText.replace(/\\s/g, ' '))")
    assert tops == ["20/s", "10/s", "50", "2,000/s", "500 ms", "50 ms"]


def test_cursor_is_moved_by_keys_and_shared_by_all_charts(admin: AdminPages) -> None:
    admin.open_dashboard()
    admin.browser.js("document.querySelector('#card-errors .plot').focus()")
    for key in ("page_up", "page_up", "page_up", "left", "left", "right"):
        admin.browser.press(KEYS[key])
    values = admin.browser.js(f"{PLOTS}.map((plot) => [plot.ariaValueNow, plot.ariaValueText])")
    assert {now for now, _ in values} == {"-90"}
    assert "58:30 · " in values[1][1]
    assert values[1][1].endswith("/s")
    assert values[4][1].count("ms") == 2
    readouts = admin.browser.js("[...document.querySelectorAll('.readout')].map((text) => text.textContent)")
    assert readouts == [text for _, text in values]
    admin.browser.press(KEYS["tab"])
    admin.browser.press(KEYS["escape"])
    assert admin.browser.text(".readout") == ""


def test_refused_key_is_said_so_and_another_one_opens_the_page(admin: AdminPages, script: Script) -> None:
    script.refusal = (403, "This API key is not an admin key.", "admin_key_required")
    admin.open("dashboard")
    admin.browser.wait("the notice", admin.gate)
    assert admin.gate() == "An admin key is needed This API key is not an admin key. Enter an admin key"
    assert not admin.browser.js("document.getElementById('cards').checkVisibility()")
    asked = script.polls
    time.sleep(2.5)
    assert script.polls == asked, "a refused page does not go on asking"
    script.refusal = None
    admin.browser.click("#dashboard .gate button")
    admin.browser.type("#ask-key", "the-admin-key" + KEYS["enter"])
    admin.browser.wait("the figures", lambda: admin.status() == "Live")
    assert script.bearers[-1] == "Bearer the-admin-key"
    assert admin.gate() == ""


def test_figures_stay_while_the_gateway_fails_and_it_is_said_so(admin: AdminPages, script: Script) -> None:
    admin.open_dashboard()
    script.refusal = (503, "The server is shutting down.", "unavailable")
    admin.browser.wait("the trouble", lambda: admin.status() == "Error 503: The server is shutting down.")
    assert admin.card("queue") == "3 waiting | 17 running"
    assert admin.browser.js("document.getElementById('dashboard').classList.contains('stale')")
    script.refusal = None
    admin.browser.wait("the recovery", lambda: admin.status() == "Live")


def test_gateway_that_cannot_be_reached_is_tried_again(admin: AdminPages) -> None:
    admin.open_dashboard()
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    admin.browser.cdp("Network.enable")
    admin.browser.cdp("Network.emulateNetworkConditions", offline=True, **network)
    try:
        admin.browser.wait("the trouble", lambda: admin.status() == "The gateway cannot be reached.")
    finally:
        admin.browser.cdp("Network.emulateNetworkConditions", offline=False, **network)
    admin.browser.wait("the recovery", lambda: admin.status() == "Live")


def test_shutting_down_is_said_so(admin: AdminPages, script: Script) -> None:
    script.live = live(is_draining=True)
    admin.open("dashboard")
    admin.browser.wait("the status", lambda: admin.status() == "Shutting down")


def test_names_never_become_markup(admin: AdminPages, script: Script) -> None:
    name = "<img src=x onerror=\"document.title='owned'\">"
    script.live = live((RouteView(name=name, deployments=(name,)),))
    admin.open_dashboard()
    assert admin.rows("#routes")[0][:2] == [name, name]
    assert admin.browser.js("document.title") == "Dashboard – Baton"


@pytest.mark.parametrize(("width", "height"), PHONES)
def test_phone_never_scrolls_sideways_and_labels_each_value(admin: AdminPages, script: Script, width: int, height: int) -> None:
    admin.browser.viewport(width, height, phone=True)
    script.live = live((CHAT, RouteView(name="organisation/" + "x" * 90, deployments=("y" * 80, "llama-b"))))
    admin.open_dashboard()
    assert admin.fits()
    cell = "document.querySelectorAll('#deployments td')[1]"
    assert admin.browser.js(f"[getComputedStyle({cell}, '::before').content, {cell}.dataset.label]") == [
        '"Breaker"',
        "Breaker",
    ]
    assert admin.browser.js("document.querySelectorAll('#deployments th[role=rowheader]').length") == 4


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves_while_figures_change(admin: AdminPages, script: Script, width: int) -> None:
    admin.browser.viewport(width, 860, phone=width < 600)
    admin.open_dashboard()
    watch = (
        "[window.shift = 0, new PerformanceObserver((list) => list.getEntries().forEach((entry) => { shift += entry.value }))"
    )
    admin.browser.js(f"{watch}.observe({{type: 'layout-shift'}})]")
    asked = script.polls
    script.live = live(series={**series(), "requests": [12345] * 300, "ttft_p50_s": [12.5] * 300, "ttft_p95_s": [None] * 300})
    admin.browser.wait("new figures", lambda: script.polls > asked + 1)
    assert admin.card("ttft").startswith("p50 12.5 s")
    # A unit gives way to a longer number before it; 0.1 is what is called good.
    assert admin.browser.js("shift") < 0.001


def test_every_control_has_a_name(admin: AdminPages) -> None:
    admin.open_dashboard()
    assert admin.unnamed_controls() == []
