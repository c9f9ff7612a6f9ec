"""Starts real gateway processes on free ports of the loopback interface."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[3]

FAKE = """
[models.fake]
engine = "fake"
replies = [{ text = "Hello there!" }]
"""


class Gateway:
    """A running process, its URL and what it writes."""

    def __init__(self, process: subprocess.Popen[str], stderr: Path) -> None:
        self.process = process
        self.stderr = stderr
        self.lines = [self._line(), self._line()]
        self.url = self.lines[1].removeprefix("Baton is ready: ").split()[0]
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the gateway ended: {self.stderr.read_text()}"
        return line.strip()

    def log(self) -> str:
        return self.stderr.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gateway", *arguments]


def environment(**more: str) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("BATON_")}
    return {**clean, "PYTHONWARNINGS": "error", **more}


@contextmanager
def running(folder: Path, config: str = FAKE, **variables: str) -> Iterator[Gateway]:
    """Run a gateway with this configuration until the block ends; the port is a free one."""
    folder.mkdir(parents=True, exist_ok=True)
    file, stderr = folder / "gateway.toml", folder / "stderr.txt"
    file.write_text(config)
    with stderr.open("w") as errors:
        process = subprocess.Popen(
            command("serve", "--config", str(file), "--port", "0"),
            cwd=ROOT,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            gateway = Gateway(process, stderr)
            with gateway.client:
                yield gateway
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(scope="session")
def running_gateway() -> Callable[..., object]:
    """Start a gateway in a given folder: for fixtures of a wider scope."""
    return running


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., object]:
    """Start a gateway of one's own: `with start(config) as gateway`."""
    return lambda config=FAKE, **variables: running(tmp_path / "gateway", config, **variables)


@pytest.fixture
def run_baton() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command to its end."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=ROOT,
            env=environment(**variables),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
