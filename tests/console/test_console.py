"""The console as people use it: a real gateway, a real browser."""

import json
from pathlib import Path

import pytest
from console_window import Console
from scripted_gateway import serve
from webdriver import KEYS, Browser

PHONES = [(390, 844), (320, 568)]


def test_page_loads_without_complaints_and_only_from_the_gateway(console: Console) -> None:
    console.browser.wait("a health check", lambda: console.browser.text("#models"))
    assert console.browser.console_messages() == []
    urls = [request["url"] for request in console.browser.requests(console.url)]
    assert f"{console.url}/console/console.js" in urls
    assert [url for url in urls if not url.startswith(console.url)] == []


def test_answer_appears_while_it_is_made(console: Console) -> None:
    console.send("Hello")
    lengths: set[int] = set()

    def look() -> bool:
        lengths.update(map(len, console.answers()))
        return "very long line" in (console.answers() or [""])[-1]

    console.browser.wait("the end of the answer", look)
    assert len(lengths) >= 4, lengths


def test_figures_come_from_the_usage_of_the_gateway(console: Console) -> None:
    console.ask("Hello")
    figures = console.figures()
    assert figures["rate"].endswith(" tok/s")
    assert "≈" not in figures["rate"]
    assert figures["ttft"].startswith("TTFT ")
    assert figures["prompt"] == f"{len('user: Hello' + chr(10) + 'assistant:')} prompt"
    assert figures["cached"] == "0 cached"


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stop_keeps_the_text_and_frees_the_slot(console: Console, how: str) -> None:
    console.choose("endless")
    console.send("Go on")
    console.browser.wait("some text", lambda: len(console.answers()[-1]) > 10 if console.answers() else False)
    assert console.running("endless") == 1
    if how == "button":
        console.browser.click("#stop")
    else:
        console.browser.press(KEYS["escape"])
    console.browser.wait("the end of the stream", lambda: not console.is_answering())
    console.browser.wait("a free slot", lambda: console.running("endless") == 0)
    assert console.answers()[-1].startswith("All work")
    assert console.figures()["flag"] == "stopped"


def sent_request(console: Console) -> dict[str, object]:
    posts = [request for request in console.browser.requests(console.url) if request["method"] == "POST"]
    body = json.loads(posts[-1]["postData"])
    assert isinstance(body, dict)
    return body


def test_untouched_parameters_are_left_to_the_gateway(console: Console) -> None:
    console.ask("Hello")
    assert sent_request(console) == {
        "model": "story",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.7,
    }


def test_every_parameter_is_sent(console: Console) -> None:
    values = {"top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 7, "max_tokens": 12}
    for name, value in values.items():
        console.browser.type(f"#settings [name={name}]", str(value))
    console.browser.type("#settings [name=system]", "Be brief.")
    console.browser.type("#settings [name=stop]", "###\n\\n\\nUser:")
    console.browser.js("document.querySelector('[name=temperature]').value = 0.2")
    console.browser.click("#settings [name=json]")
    assert console.ask("Hello").strip() == "A cache"
    assert console.figures()["completion"] == "12 out"
    assert console.figures()["flag"] == "cut short"
    assert sent_request(console) == {
        "model": "story",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.2,
        **values,
        "stop": ["###", "\n\nUser:"],
        "response_format": {"type": "json_object"},
    }


def test_impossible_parameter_is_pointed_out_and_not_sent(console: Console) -> None:
    console.browser.type("#settings [name=top_p]", "1.5")
    console.send("Hello")
    assert console.browser.js("document.activeElement.name") == "top_p"
    assert console.answers() == []
    assert console.browser.js("document.getElementById('prompt').value") == "Hello"


def test_refusal_is_shown_with_its_message(console: Console) -> None:
    console.choose("full")
    console.ask("Hello")
    assert "The script says Overloaded." in console.browser.text(".error p")
    assert console.browser.text(".error b") in ("Error 429", "Error 503")
    assert "engine_overloaded" in console.browser.text(".error small")
    console.choose("story")
    console.browser.click(".error [data-act=again]")
    console.browser.wait("the second try", lambda: "cache" in console.answers()[-1])
    assert len(console.answers()) == 1


def test_failure_in_the_middle_keeps_what_came(console: Console) -> None:
    console.choose("broken")
    assert console.ask("Hello").startswith("Half of")
    assert console.browser.text(".error b") == "The answer broke off"
    assert "The script says Failed." in console.browser.text(".error p")


def test_screen_reader_hears_each_sentence_once(console: Console) -> None:
    answer = console.ask("Hello")
    spoken = str(console.browser.js("[...document.querySelectorAll('#spoken p')].map((part) => part.textContent).join('')"))
    assert spoken.count("cache") == 1
    assert spoken.rstrip().endswith("```")
    assert "very long line" in answer
    assert console.browser.js("document.querySelectorAll('#spoken p').length") > 3


def test_copy_puts_the_answer_into_the_clipboard(console: Console) -> None:
    console.browser.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    console.ask("Hello")
    console.browser.click("figure [data-act=copy]")
    console.browser.wait("the tick", lambda: console.browser.js("document.querySelector('figure [data-done]')"))
    assert console.browser.js("navigator.clipboard.readText()").startswith('print("a very long line')
    console.browser.click("footer [data-act=copy]")
    console.browser.wait("the tick", lambda: console.browser.js("document.querySelector('footer [data-done]')"))
    assert console.browser.js("navigator.clipboard.readText()").strip().startswith("A **cache** keeps")


def test_regenerate_replaces_the_answer(console: Console) -> None:
    console.ask("Hello")
    console.browser.click("[data-act=again]:not(.plain)")
    console.browser.wait("the new answer", lambda: not console.is_answering() and "phone" in console.answers()[-1])
    assert len(console.answers()) == 1
    assert len(console.browser.js("[...document.querySelectorAll('.user')]")) == 1


def test_follow_up_carries_the_conversation(console: Console) -> None:
    console.ask("Hello")
    assert console.ask("And now?") == "The second answer."


def test_conversation_survives_a_reload_and_clear_can_be_undone(console: Console) -> None:
    answer = console.ask("Hello")
    console.browser.open(f"{console.url}/")
    assert console.answers() == [answer]
    console.browser.click("#clear")
    assert console.answers() == []
    assert console.browser.js("document.getElementById('empty').checkVisibility()")
    console.browser.click("#toast button")
    assert console.answers() == [answer]


def test_example_starts_a_conversation(console: Console) -> None:
    assert console.browser.js("document.querySelectorAll('.examples button').length") == 3
    console.browser.click(".examples button")
    console.browser.wait("an answer", lambda: console.answers() and "cache" in console.answers()[0])


def test_shift_enter_makes_a_new_line(console: Console) -> None:
    console.browser.type("#prompt", "one")
    console.browser.press(KEYS["shift"], KEYS["enter"])
    console.browser.type("#prompt", "two")
    assert console.browser.js("document.getElementById('prompt').value") == "one\ntwo"
    assert console.answers() == []


def test_scrolling_follows_the_answer_until_the_reader_goes_up(console: Console) -> None:
    browser = console.browser
    console.choose("endless")
    console.send("Go on")
    scroll = "document.getElementById('scroll')"
    browser.viewport(1280, 420)
    browser.wait("a long answer", lambda: browser.js(f"{scroll}.scrollHeight > {scroll}.clientHeight + 150"))
    browser.wait("the end in sight", lambda: console.distance_to_end() < 8)
    browser.js(f"{scroll}.scrollTo(0, 40)")
    height = browser.js(f"{scroll}.scrollHeight")
    browser.wait("more text", lambda: browser.js(f"{scroll}.scrollHeight") > height)
    assert browser.js(f"{scroll}.scrollTop") == 40
    browser.click("#latest")
    browser.wait("the end in sight", lambda: console.distance_to_end() < 8)


def test_models_and_their_state_are_listed(console: Console) -> None:
    browser = console.browser
    browser.wait("all models", lambda: browser.js("document.querySelectorAll('#models li').length") == 5)
    assert browser.js("[...document.querySelectorAll('#models .dot')].every((dot) => dot.classList.contains('ready'))")
    console.choose("endless")
    console.send("Go on")
    browser.wait("the running request", lambda: "1 of 8 slots" in browser.text("#models .chosen"))


def test_key_is_asked_for_and_used(browser: Browser, tmp_path: Path) -> None:
    with serve(tmp_path, BATON_API_KEY="sesame-opens-the-door") as url:
        console = Console(browser, url)
        browser.open(f"{url}/")
        browser.wait("the question", lambda: browser.js("document.getElementById('ask').open"))
        browser.type("#ask-key", "wrong" + KEYS["enter"])
        browser.wait("the question again", lambda: browser.js("document.getElementById('ask-key').value") == "")
        browser.type("#ask-key", "sesame-opens-the-door" + KEYS["enter"])
        browser.wait("the models", lambda: browser.js("document.getElementById('model').value"))
        console.choose("story")
        assert "cache" in console.ask("Hello")
        assert browser.js("Object.keys(localStorage).some((key) => localStorage[key].includes('sesame'))") is False


@pytest.mark.parametrize(("width", "height"), PHONES)
def test_phone_never_scrolls_sideways(console: Console, width: int, height: int) -> None:
    browser = console.browser
    browser.viewport(width, height, phone=True)
    parts = "[document.documentElement, document.getElementById('scroll'), document.getElementById('panel')]"
    fits = f"{parts}.every((part) => part.scrollWidth <= part.clientWidth)"
    assert browser.js(fits)
    console.ask("unbroken" * 40)
    assert browser.js(fits)
    browser.js("document.querySelector('pre').scrollTo(50, 0)")
    assert browser.js("document.querySelector('pre').scrollLeft") == 50
    browser.click("#toggle")
    assert browser.js(fits)
    browser.press(KEYS["escape"])
    assert not browser.js("document.getElementById('panel').checkVisibility()")


def test_theme_follows_the_system_until_chosen(console: Console) -> None:
    browser = console.browser
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.js(colour)
    browser.prefer("dark")
    dark = browser.js(colour)
    assert dark != light
    browser.click("#theme")
    assert browser.js(colour) == light
    browser.open(f"{console.url}/")
    assert browser.js(colour) == light
    browser.click("#theme")
    browser.prefer("light")
    assert browser.js(colour) == light


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrast_is_at_least_4_5(console: Console, scheme: str) -> None:
    console.browser.prefer(scheme)
    script = """Object.fromEntries([['ink', 'page'], ['soft', 'page'], ['soft', 'card'], ['accent', 'page'], ['bad', 'page'],
      ['bad', 'card'], ['accent', 'card'], ['accent', 'tint'], ['ink', 'card'],
      ['on-accent', 'accent'], ['ink', 'tint'], ['ink', 'sunken'], ['soft', 'sunken']].map(([text, back]) => {
      const luminance = (name) => {
        const probe = document.body.appendChild(document.createElement('i'));
        probe.style.color = `var(--${name})`;
        const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map((c) => c / 255);
        probe.remove();
        const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const [low, high] = [luminance(text), luminance(back)].sort((a, b) => a - b);
      return [`${text} on ${back}`, (high + 0.05) / (low + 0.05)];
    }))"""
    ratios = console.browser.js(script)
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


def test_every_control_has_a_name(console: Console) -> None:
    console.ask("Hello")
    console.browser.cdp("Accessibility.enable")
    nodes = console.browser.cdp("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "combobox", "slider", "spinbutton", "switch", "link"}
    controls = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
    assert len(controls) > 15
    assert [node["role"]["value"] for node in controls if not node.get("name", {}).get("value")] == []
