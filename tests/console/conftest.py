"""Gateways with scripted models or scripted figures, and the console in a real browser in front of them."""

import shutil
from collections.abc import Iterator

import pytest
from admin_window import AdminPages
from console_window import Console
from scripted_admin import Script, serve_script
from scripted_gateway import serve
from webdriver import KEYS, Browser, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    with chromium() as window:
        yield window


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that asks for no key."""
    with serve(tmp_path_factory.mktemp("console")) as address:
        yield address


@pytest.fixture
def console(browser: Browser, url: str) -> Iterator[Console]:
    """The console on a wide window in light colours."""
    browser.viewport(1280, 860)
    browser.prefer("light")
    page = Console(browser, url)
    page.open()
    yield page
    if page.is_answering():
        browser.press(KEYS["escape"])


@pytest.fixture
def script() -> Script:
    """What the gateway behind `admin` answers; a test may change it at any time."""
    return Script()


@pytest.fixture
def admin(browser: Browser, script: Script) -> Iterator[AdminPages]:
    """The pages for operators on a wide window in light colours, not opened yet."""
    browser.viewport(1280, 860)
    browser.prefer("light")
    with serve_script(script) as address:
        yield AdminPages(browser, address)
        # Nothing may ask a gateway that is gone.
        browser.open("about:blank")
