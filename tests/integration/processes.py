"""Servers as processes that can be killed and started again at the same address: Baton and llama-server."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import pytest

from tests.e2e.gateway_process import ROOT

START_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def find_llama_server() -> Path | None:
    """The llama-server that `make test` has built for this machine; None when there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / ".ci"))
        from benchmarks.peers import llama_server_path
    path = llama_server_path()
    return path if path.is_file() else None


class ServerProcess:
    """A server on a port that it keeps. A context manager: it runs inside the block, unless it was killed.

    Args:
        command: started with the port as its last argument.
        health: a path that answers 200 once it serves.
    """

    def __init__(self, folder: Path, command: list[str], health: str, **variables: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [*command, "--port", str(self.port)]
        self._health = health
        self._log = folder / "log.txt"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
        self._environment = clean | variables
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, without waiting for it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)

    def wait_until_ready(self) -> None:
        """Wait until it serves."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(self.url + self._health, timeout=5).status_code == 200:
                    return
            time.sleep(0.02)
        raise AssertionError(f"{self._command} does not serve: {self._log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()


def baton_process(folder: Path, text: str, **variables: str) -> ServerProcess:
    """Baton with this configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "gateway.toml"
    file.write_text(text)
    return ServerProcess(
        folder, [sys.executable, "-m", "gateway", "serve", "--config", str(file)], "/health/ready", **variables
    )


def llama_server_process(folder: Path, binary: Path, model: Path) -> ServerProcess:
    """llama-server with this model file, with one thread: other servers live beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(binary), "-m", str(model), "-t", "1", "-np", "2", "-c", "2048", "--host", "127.0.0.1"]
    return ServerProcess(folder, command, "/health")
