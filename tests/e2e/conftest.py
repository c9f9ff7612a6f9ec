"""Gateways for the tests: one as it comes, and a small one that two tenants share."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import openai
import pytest

from gateway.config_sources.embedded import find_embedded_model
from tests.e2e.gateway_process import Server, config, running

TORCH_CONTEXT = 512

_LOG_CHARS = 4000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_embedded_model() is None:
        here = [item for item in items if Path(__file__).parent in item.path.parents]
        for item in here:
            item.add_marker(pytest.mark.skip(reason="the embedded model is not installed: make test"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Server):
                report.sections.append((f"end of the log of '{name}'", value.log()[-_LOG_CHARS:]))
    return report


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The embedded model as `make run` serves it."""
    with running(tmp_path_factory.mktemp("server"), config()) as gateway:
        gateway.wait_until_ready()
        yield gateway


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """512 cells for everybody, two slots, a queue of two, and two tenants with the keys `alice` and `bob`."""
    text = config("context = 512", "slots = 2", "queue = 2", "kv_unified = true", "cache_bytes = 6000000")
    with running(tmp_path_factory.mktemp("small"), text, BATON_API_KEY="alice,bob") as gateway:
        gateway.wait_until_ready()
        yield gateway


@pytest.fixture(scope="session")
def torch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The embedded model on the torch engine, with four slots."""
    text = config('engine = "torch"', f"context = {TORCH_CONTEXT}", "slots = 4", "max_crashes = 50")
    with running(tmp_path_factory.mktemp("torch"), text) as gateway:
        gateway.wait_until_ready()
        yield gateway


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with server.openai() as sdk:
        yield sdk


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., AbstractContextManager[Server]]:
    """Start a gateway of one's own: `with start("slots = 2") as gateway`."""
    return lambda *lines, server="", **variables: running(tmp_path / "gateway", config(*lines, server=server), **variables)
