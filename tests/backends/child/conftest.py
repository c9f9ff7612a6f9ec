"""Backends with a scripted child, which leave nothing behind: checked after every test, on both event loops."""

import asyncio
import os
import sys
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from backends.child.config import ChildConfig
from backends.child.errors import LoadError
from backends.child.parent.hosted import HostedBackend
from backends.types import Delta, GenerateRequest, Health, ModelCard, Text

CHILD = Path(__file__).with_name("child.py")
NAME = "scripted"


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.model"
    path.write_bytes(b"MODEL and its weights")
    return path


def describe(name: str, config: ChildConfig) -> ModelCard:
    path = Path(config.path)
    if not path.read_bytes().startswith(b"MODEL"):
        raise LoadError(f"{path.name} is no model.")
    return ModelCard(id=name, created=int(path.stat().st_mtime), architecture="described", context_length=64)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    assert not Path("/proc/self/task/self/children").exists() or children() == set()


def children() -> set[int]:
    """Engine children that this process started and has not reaped; servers of other tests are not meant."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split() if _is_scripted_or_dead(pid)}
    return found


def _is_scripted_or_dead(pid: str) -> bool:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"child.py" in command or not command


@pytest.fixture
async def start(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., HostedBackend]]:
    """Make and start a backend: options of the child first, changes of the settings by name."""
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    backends: list[HostedBackend] = []

    async def make(
        *options: str,
        command: tuple[str, ...] = (sys.executable, str(CHILD)),
        kind: type[ChildConfig] = ChildConfig,
        describe: Callable[[str, ChildConfig], ModelCard] = describe,
        started: bool = True,
        **settings: object,
    ) -> HostedBackend:
        config = kind(**({"path": str(model_file), "slots": 2, "queue": 3} | settings))
        backend = HostedBackend(NAME, config, command=(*command, *options), describe=describe)
        backends.append(backend)
        if started:
            await backend.start()
        return backend

    yield make
    for backend in backends:
        await backend.close()


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.005)


async def until(backend: HostedBackend, condition: Callable[[Health], bool]) -> Health:
    async def is_so() -> bool:
        return condition(await backend.health())

    await eventually(is_so)
    return await backend.health()


async def ready(backend: HostedBackend) -> Health:
    return await until(backend, lambda health: health.state == "ready")


def ask(prompt: str, **changes: object) -> GenerateRequest:
    return GenerateRequest(**({"id": "r", "model": NAME, "prompt": Text(prompt)} | changes))


async def play(backend: HostedBackend, prompt: str, **changes: object) -> list[Delta]:
    return [delta async for delta in backend.generate(ask(prompt, **changes))]


def text_of(deltas: list[Delta], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas if delta.index == index)


async def commands(backend: HostedBackend) -> list[str]:
    """What the child has received, without this question."""
    return (await backend.detokenize(NAME, (0,))).split("\n")[:-1]
