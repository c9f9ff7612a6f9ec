"""The dashboard and the page of keys in a browser window, in the words of a person who looks at them."""

from typing import Any

from webdriver import Browser

ROWS = """[...document.querySelectorAll(arguments[0] + ' > tbody > tr')].map(
  (row) => [...row.cells].map((cell) => cell.innerText.replace(/\\s+/g, ' ').trim()))"""


class AdminPages:
    """The pages for operators in a browser, with what a person sees and does."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser = browser
        self.url = url

    def open(self, view: str) -> None:
        """Load the page afresh at a view, nothing remembered."""
        self.browser.console_messages()
        self.browser.requests(self.url)
        self.browser.open(f"{self.url}/#/{view}")

    def open_dashboard(self) -> None:
        """Load the dashboard and wait for its figures."""
        self.open("dashboard")
        self.browser.wait("the figures", lambda: self.status() == "Live")

    def open_keys(self) -> None:
        """Load the page of keys and wait for the list."""
        self.open("keys")
        self.browser.wait("the keys", lambda: self.browser.text("#key-count"))

    def go(self, view: str) -> None:
        """Follow a link to a view."""
        self.browser.click(f"#views a[href='#/{view}']")

    def status(self) -> str:
        """What the dashboard says of itself."""
        return self.browser.text("#live").strip()

    def card(self, name: str) -> str:
        """The figures of a card, without its chart."""
        lines = f"[...document.querySelectorAll('#card-{name} > p')].map((line) => line.innerText).join(' | ')"
        return str(self.browser.js(f"{lines}.replace(/\\s+/g, ' ')"))

    def rows(self, table: str) -> list[list[str]]:
        """The texts of all cells below the head of a table."""
        return list(self.browser.js(ROWS, table))

    def gate(self) -> str:
        """The notice that stands instead of a page; empty without one."""
        gates = "[...document.querySelectorAll('.gate')].filter((gate) => gate.checkVisibility())"
        return str(self.browser.js(f"{gates}.map((gate) => gate.innerText.replace(/\\s+/g, ' ')).join('')"))

    def toast(self) -> str:
        """The line that is shown for a few seconds."""
        return self.browser.text("#toast:not([hidden]) span")

    def is_open(self, dialog: str) -> bool:
        """Whether a dialog is open."""
        return bool(self.browser.js("document.querySelector(arguments[0]).open", dialog))

    def fits(self) -> bool:
        """Whether nothing can be scrolled sideways."""
        parts = "[document.documentElement, ...document.querySelectorAll('main:not([hidden]), dialog[open]')]"
        return bool(self.browser.js(f"{parts}.every((part) => part.scrollWidth <= part.clientWidth)"))

    def unnamed_controls(self) -> list[Any]:
        """Controls that a screen reader could not name."""
        self.browser.cdp("Accessibility.enable")
        nodes = self.browser.cdp("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "textbox", "searchbox", "combobox", "slider", "spinbutton", "switch", "link", "progressbar"}
        controls = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
        assert len(controls) > 5
        return [node["role"]["value"] for node in controls if not node.get("name", {}).get("value")]
