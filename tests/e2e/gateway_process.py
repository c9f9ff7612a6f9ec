"""A gateway as its users start it, and what can be seen of it from outside: HTTP, metrics, its log and its processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
from prometheus_client.parser import text_string_to_metric_families

from gateway.config_sources.embedded import EMBEDDED_MODEL, find_embedded_model

ROOT = Path(__file__).resolve().parents[2]
MODEL = EMBEDDED_MODEL
HI = [{"role": "user", "content": "Say hello."}]
CHAT = "/v1/chat/completions"

_PATIENCE_S = 60


def eventually(check: Callable[[], object], what: str) -> None:
    """Wait until `check` holds; how long is no part of what is tested."""
    deadline = time.monotonic() + _PATIENCE_S
    while not check():
        assert time.monotonic() < deadline, f"waited {_PATIENCE_S} s in vain until {what}"
        time.sleep(0.02)


class Server:
    """One running gateway.

    Attributes:
        http: a client of it, without a key.
    """

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder = process, folder
        self._connections: list[socket.socket] = []
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listens on" in line, f"the gateway ended: {self.log()}"
        self.url = line.split()[3]
        self.port = int(self.url.rpartition(":")[2])
        self.http = httpx.Client(base_url=self.url, timeout=120)

    def openai(self, key: str = "none") -> openai.OpenAI:
        """The official client, which would hide errors by trying again."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=120)

    def is_ready(self) -> bool:
        return self.http.get("/health/ready").status_code == 200

    def wait_until_ready(self) -> None:
        eventually(self.is_ready, "the gateway is ready")

    def chat(self, content: str = "Say hello.", *, key: str = "none", **fields: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 4, "temperature": 0} | fields
        return self.http.post(CHAT, json=body, headers={"authorization": f"Bearer {key}"})

    def open(self, content: str, *, key: str = "none", **fields: Any) -> socket.socket:
        """Send a chat request and leave the connection open, with nothing read from it."""
        body = json.dumps({"messages": [{"role": "user", "content": content}], "temperature": 0} | fields).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n"
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self._connections.append(connection)
        connection.sendall(head.encode() + body)
        return connection

    def close_connections(self) -> None:
        """Close whatever `open` has opened."""
        while self._connections:
            self._connections.pop().close()

    def metric(self, name: str, *, key: str = "none") -> float:
        """The sum over all labels."""
        text = self.http.get("/metrics", headers={"authorization": f"Bearer {key}"}).text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]
        assert samples, f"there is no metric {name}"
        return sum(sample.value for sample in samples)

    def load(self) -> tuple[int, int]:
        """How many choices run and wait, as the engine's last heartbeat says."""
        models = self.http.get("/health/ready").json()["models"].values()
        return sum(model["running"] for model in models), sum(model["waiting"] for model in models)

    def wait_until_idle(self) -> None:
        eventually(lambda: self.load() == (0, 0), "no request runs or waits")

    def engine(self) -> psutil.Process:
        """The engine's process; the gateway has one model."""
        engines = [child for child in psutil.Process(self.process.pid).children() if child.is_running()]
        assert len(engines) == 1, f"{len(engines)} engine processes"
        return engines[0]

    def log(self) -> str:
        return (self.folder / "stderr.txt").read_text("utf-8")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def read_to_end(connection: socket.socket, mark: bytes = b"[DONE]") -> bytes:
    """Read until the mark, or the end of the connection."""
    seen = b""
    while mark not in seen and (piece := connection.recv(65536)):
        seen += piece
    return seen


def begin_story(server: Server) -> socket.socket:
    """Open a long stream of which some tokens have come."""
    connection = server.open("Tell a long story.", max_tokens=400, ignore_eos=True, stream=True)
    seen = b""
    while seen.count(b"data: ") < 4:
        seen += connection.recv(65536)
    assert seen.startswith(b"HTTP/1.1 200")
    return connection


def config(*lines: str, server: str = "") -> str:
    """A configuration that serves SmolLM2 with these settings. One thread each: several gateways live beside each other."""
    return "\n".join(["[server]", server, f"[models.{MODEL}]", f'path = "{find_embedded_model()}"', "threads = 1", *lines, ""])


@contextmanager
def running(folder: Path, text: str, **variables: str) -> Iterator[Server]:
    """Run a gateway with this configuration on a free port until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gateway.toml").write_text(text)
    with serving(folder, "--config", str(folder / "gateway.toml"), **variables) as server:
        yield server


@contextmanager
def serving(folder: Path, *arguments: str, **variables: str) -> Iterator[Server]:
    """Run `baton serve` with these arguments on a free port until the block ends; its log is in `folder`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
    with (folder / "stderr.txt").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", *arguments, "--port", "0"],
            cwd=ROOT,
            env=clean | variables,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        server = Server(process, folder)
        with server.http:
            try:
                yield server
            finally:
                server.close_connections()
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
