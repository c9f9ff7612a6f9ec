"""Starts the fake upstream and the gateways before it, each in one process and with what its users would leave switched on.

Baton checks an API key that has limits, and keeps its metrics. LiteLLM has one worker and checks its master key. vllm-router
has neither keys nor limits by default and gets none. All three log warnings only.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.python_peers import LITELLM, VLLM_ROUTER, program
from benchmarks.servers import BATON, BenchmarkError, Running, free_port, running
from benchmarks.upstream import MODEL

_UNREACHED = 1_000_000_000
"""A limit that is kept account of and never reached: requests or tokens a minute."""
_MASTER_KEY = "sk-benchmark"


def upstream(folder: Path, *, chunks: int, first_ms: float = 0.0, interval_ms: float = 0.0) -> AbstractContextManager[Running]:
    """Run the fake upstream; its streams have `chunks` pieces of content."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.upstream", str(port), "--chunks", str(chunks)]
    command += ["--first-ms", str(first_ms), "--interval-ms", str(interval_ms)]
    return running(command, f"http://127.0.0.1:{port}", "/health", folder / f"upstream-{port}.log")


@contextlib.contextmanager
def baton(behind: Running, folder: Path) -> Iterator[Running]:
    """Run Baton from this environment, with one remote model and one API key."""
    port = free_port()
    config = folder / f"baton-{port}.toml"
    model = f'engine = "remote"\nurl = "{behind.url}/v1"\nmodel = "{MODEL}"\nmax_connections = 4096\n'
    store = f'path = "{folder / f"baton-{port}.db"}"'
    config.write_text(f'[server]\nlog_level = "warning"\n\n[store]\n{store}\n\n[models.{MODEL}]\n{model}', encoding="utf-8")
    key = _create_key(config)
    command = [*BATON, "serve", "--config", str(config), "--port", str(port)]
    # Asks for the key too, so that the keys have been read when the first request comes.
    with running(command, f"http://127.0.0.1:{port}", "/v1/models", folder / f"baton-{port}.log", key=key) as server:
        yield server


def _create_key(config: Path) -> str:
    command = [*BATON, "keys", "create", "--name", "benchmark", "--config", str(config)]
    command += ["--rpm", str(_UNREACHED), "--tpm", str(_UNREACHED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise BenchmarkError(f"no API key could be made:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


@contextlib.contextmanager
def litellm(behind: Running, folder: Path) -> Iterator[Running]:
    """Run LiteLLM's proxy.

    Raises:
        StepError: it cannot be installed.
    """
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(
        f"model_list:\n  - model_name: {MODEL}\n    litellm_params:\n      model: openai/{MODEL}\n"
        f"      api_base: {behind.url}/v1\n      api_key: none\ngeneral_settings:\n  master_key: {_MASTER_KEY}\n",
        encoding="utf-8",
    )
    command = [str(program(LITELLM)), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--num_workers", "1", "--telemetry", "False"]
    # Its price list comes with the package; fetching it anew would make the start depend on the network.
    env = {"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    log = folder / "litellm.log"
    with running(command, f"http://127.0.0.1:{port}", "/health/liveliness", log, key=_MASTER_KEY, env=env) as server:
        yield server


@contextlib.contextmanager
def vllm_router(behind: Running, folder: Path) -> Iterator[Running]:
    """Run vllm-router with the upstream as its only worker and a policy that looks at no request.

    Raises:
        StepError: it cannot be installed.
    """
    port = free_port()
    command = [str(program(VLLM_ROUTER)), "--worker-urls", behind.url, "--policy", "round_robin", "--log-level", "warning"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    with running(command, f"http://127.0.0.1:{port}", "/health", folder / "vllm-router.log") as server:
        yield server
