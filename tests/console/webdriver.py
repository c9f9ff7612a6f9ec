"""A browser for tests: chromedriver's W3C WebDriver wire (plain JSON over HTTP) spoken through httpx.

Knows the dozen commands that the console's tests need, and nothing of the console. No WebDriver library: they bring half a
dozen packages. Source: W3C WebDriver (elements, actions, screenshots) and chromedriver's `goog/cdp` and `se/log`.
"""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
KEYS = {
    "enter": "\ue007",
    "escape": "\ue00c",
    "shift": "\ue008",
    "tab": "\ue004",
    "page_up": "\ue00e",
    "left": "\ue012",
    "right": "\ue014",
}


class Browser:
    """One window. Every method raises `AssertionError` with WebDriver's own message when a command fails."""

    def __init__(self, driver_url: str, profile: Path) -> None:
        self._http = httpx.Client(base_url=driver_url, timeout=60, trust_env=False)
        options = {"binary": shutil.which("chromium"), "args": [*FLAGS, f"--user-data-dir={profile}"]}
        logs = {"browser": "ALL", "performance": "ALL"}
        reply = self._send(
            "POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": logs}}}
        )
        self._session = f"/session/{reply['sessionId']}"

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        reply = self._http.request(method, path, json=body)
        value = reply.json()["value"]
        assert reply.is_success, value["message"]
        return value

    def _post(self, path: str, **body: Any) -> Any:
        return self._send("POST", self._session + path, body)

    def open(self, url: str) -> None:
        """Load a page and wait for its load event."""
        self._post("/url", url=url)

    def js(self, expression: str, *args: Any) -> Any:
        """Value of a JavaScript expression; `args` are its `arguments`."""
        return self._post("/execute/sync", script=f"return {expression}", args=list(args))

    def element(self, css: str) -> str:
        """Path of the first element that matches."""
        found = self._post("/element", using="css selector", value=css)
        return f"/element/{next(iter(found.values()))}"

    def click(self, css: str) -> None:
        """Click as a person does: WebDriver refuses what is hidden or covered."""
        self._post(self.element(css) + "/click")

    def type(self, css: str, text: str) -> None:
        """Type into a field; `KEYS` holds the keys without a character."""
        self._post(self.element(css) + "/value", text=text)

    def press(self, *keys: str) -> None:
        """Press keys together wherever the focus is, and release them."""
        downs = [{"type": "keyDown", "value": key} for key in keys]
        ups = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self._post("/actions", actions=[{"type": "key", "id": "keyboard", "actions": downs + ups}])

    def text(self, css: str) -> str:
        """Text content of the first match, hidden or not; empty without a match."""
        return str(self.js("document.querySelector(arguments[0])?.textContent ?? ''", css))

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = 20) -> Any:
        """Poll until the condition holds and return its value."""
        limit = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < limit, f"waited {seconds} s for: {what}"
            time.sleep(0.02)
        return value

    def cdp(self, command: str, **params: Any) -> Any:
        """Send a DevTools command."""
        return self._post("/goog/cdp/execute", cmd=command, params=params)

    def viewport(self, width: int, height: int, *, phone: bool = False, scale: int = 1) -> None:
        """Size of the page in CSS pixels; a phone also has a touch screen and no hover."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone)
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=phone)

    def prefer(self, scheme: str) -> None:
        """Choose what `prefers-color-scheme` says."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def console_messages(self) -> list[str]:
        """Warnings and errors since the last call."""
        entries = self._post("/se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self, page: str) -> list[dict[str, Any]]:
        """What pages below the URL `page` asked for since the last call, as DevTools' `Request` (`url`, `method`, ...)."""
        messages = [json.loads(entry["message"])["message"] for entry in self._post("/se/log", type="performance")]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [params["request"] for params in sent if params["documentURL"].startswith(page)]

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self._send("GET", self._session + "/screenshot")))

    def close(self) -> None:
        """End the session and its Chromium."""
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            self._send("DELETE", self._session)
        self._http.close()


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A fresh Chromium without history, behind a chromedriver of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert driver.stdout is not None
        try:
            line = next((line for line in driver.stdout if "started successfully on port" in line), "")
            assert line, "chromedriver did not start"
            browser = Browser(f"http://127.0.0.1:{line.rstrip().rstrip('.').rsplit(' ', 1)[1]}", Path(profile))
            try:
                yield browser
            finally:
                browser.close()
        finally:
            driver.terminate()
            driver.wait(timeout=10)
            driver.stdout.close()
