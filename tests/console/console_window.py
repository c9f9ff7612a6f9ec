"""The console in a browser window, in the words of a person who uses it. Knows the page's ids, and no WebDriver."""

import httpx
from webdriver import KEYS, Browser


class Console:
    """The console in a browser, with what a person sees and does."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser = browser
        self.url = url

    def open(self, model: str = "story") -> None:
        """Open the page afresh, nothing remembered, and choose a model."""
        self.browser.open(f"{self.url}/")
        self.browser.js("[sessionStorage.clear(), localStorage.clear()]")
        # The page writes its memory down when it is left, so the memory is emptied in between.
        self.browser.js("addEventListener('pagehide', () => sessionStorage.clear())")
        self.browser.console_messages()
        self.browser.requests(self.url)
        self.browser.open(f"{self.url}/")
        self.browser.wait("the models", lambda: self.browser.js("document.getElementById('model').value"))
        self.choose(model)

    def choose(self, model: str) -> None:
        """Pick a model."""
        picker = "document.getElementById('model')"
        self.browser.js(f"[{picker}.value = arguments[0], {picker}.onchange()]", model)
        assert self.browser.js(f"{picker}.value") == model

    def send(self, text: str) -> None:
        """Type a message and press Enter."""
        self.browser.type("#prompt", text + KEYS["enter"])

    def answers(self) -> list[str]:
        """Texts of all answers."""
        return list(self.browser.js("[...document.querySelectorAll('.answer .text')].map((text) => text.innerText)"))

    def is_answering(self) -> bool:
        """Whether the stop button is there."""
        return bool(self.browser.js("!document.getElementById('stop').hidden"))

    def ask(self, text: str) -> str:
        """Send a message and wait for the whole answer."""
        before = len(self.answers())
        self.send(text)
        self.browser.wait("the answer", lambda: len(self.answers()) > before and not self.is_answering())
        return self.answers()[-1]

    def figures(self) -> dict[str, str]:
        """What stands under the last answer, by class."""
        items = "[...document.querySelectorAll('.answer:last-child .stats li')]"
        return dict(self.browser.js(f"{items}.map((item) => [item.className, item.textContent])"))

    def running(self, model: str) -> int:
        """How many requests the gateway says the model works on."""
        health = httpx.get(f"{self.url}/health/ready", trust_env=False).json()
        return int(health["models"][model]["running"])

    def distance_to_end(self) -> float:
        """How far the end of the conversation is below what is seen, in CSS pixels."""
        scroll = "document.getElementById('scroll')"
        return float(self.browser.js(f"{scroll}.scrollHeight - {scroll}.scrollTop - {scroll}.clientHeight"))
