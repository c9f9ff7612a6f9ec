"""`make bench ARGS=engine`: Baton and llama-server in turn, with the same model file, threads, slots, CPU build and prompts.

Only one server is alive at a time, and they take turns (A B A B), so that neither gets the better half of a machine's day. Each
repetition starts both anew and sends both the same prompts, which no other repetition shares. Prints the ratios as a table and
keeps everything under `benchmarks/results`.
"""

import argparse
import os
import tempfile
import time
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import report, servers
from benchmarks.cases import CASES, STEP_CASE, Case, Run
from benchmarks.generator import generate
from benchmarks.peers import llama_server as build_llama_server
from benchmarks.servers import Running

LOAD_TIMEOUT_S = 1800.0


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line of this comparison."""
    parser = argparse.ArgumentParser(
        prog="benchmarks engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few requests and two repetitions: a first impression")
    parser.add_argument("--repetitions", type=int, help="of each server (default 3, quick 2)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="for either server (default all cores)")
    parser.add_argument("--model", type=Path, help="a GGUF file (default the embedded model)")
    parser.add_argument("--llama-server", type=Path, help="use this binary instead of building one")
    return parser.parse_args(arguments)


def compare(options: argparse.Namespace) -> None:
    """Run the whole comparison."""
    model = options.model or servers.embedded_model()
    binary = options.llama_server or build_llama_server()
    facts = report.machine() | {
        "llama-cpp-python": version("llama-cpp-python"),
        "model": model.name,
        "threads": options.threads,
    }
    report.warn_when_busy(facts)
    run_id, ours, peers = time.time_ns(), list[Run](), list[Run]()
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as name:
        folder = Path(name)
        for repetition in range(options.repetitions or (2 if options.quick else 3)):
            salt = f"{run_id}/{repetition}"
            ours.append(one_run("Baton", servers.baton(model, options.threads, folder), salt, options.quick))
            peer = servers.llama_server(binary, model, options.threads, folder)
            peers.append(one_run("llama-server", peer, salt, options.quick))
    table = report.table(ours, peers)
    print("\n" + table + "\n")
    stem = time.strftime("%Y-%m-%d", time.gmtime()) + ("-quick" if options.quick else "")
    figures = {"baton_runs": ours, "llama_server_runs": peers}
    for path in report.write(stem, "Baton beside llama-server", table, facts, figures):
        print(path)


def one_run(name: str, server: AbstractContextManager[Running], salt: str, quick: bool) -> Run:
    """Start a server, send it every case, and end it."""
    run: Run = {}
    with server as running:
        ready_s, rss_mb = running.ready_s, running.rss_mb()
        load(running, Case(name="warm-up", users=1, requests=2, quick_requests=2), salt, quick)
        step_host_ms = None
        for case in CASES:
            before = engine_steps(running) if name == "Baton" else None
            run[case.name] = load(running, case, salt, quick)
            after = engine_steps(running) if name == "Baton" else None
            if case.name == STEP_CASE and before and after and after[1] > before[1]:
                step_host_ms = 1e3 * (after[0] - before[0]) / (after[1] - before[1])
            print(f"{name:12} {case.name}: {brief(run[case.name])}", flush=True)
        # The larger of before and after: an idle gateway that has worked is what runs in real life.
        run["own"] = {"ready_s": ready_s, "gateway_rss_mb": max(rss_mb, running.rss_mb()), "step_host_ms": step_host_ms}
    return run


def engine_steps(running: Running) -> tuple[float, float] | None:
    """Read how many seconds of Python work went into how many batch steps."""
    seconds = running.counter("baton_engine_step_host_seconds_total")
    steps = running.counter("baton_engine_steps_total")
    return None if seconds is None or steps is None else (seconds, steps)


def load(running: Running, case: Case, salt: str, quick: bool) -> dict[str, Any]:
    """Send one case from a process of its own.

    Raises:
        BenchmarkError: a request failed.
    """
    requests = case.quick_requests if quick else case.requests
    arguments = ["--model", "bench", "--stream", "-c", str(case.users), "-n", str(requests), "--seed", f"{salt}/{case.name}"]
    arguments += ["--prompt-words", str(case.prompt_words), "--shared-prefix", str(case.shared_prefix)]
    return generate("load", running.url, arguments, LOAD_TIMEOUT_S)


def brief(figures: dict[str, Any]) -> str:
    """Say one case in one line."""
    first, gap = figures["ttft_ms"], figures["itl_ms"]
    return f"{figures['tok_s']} tok/s, ttft p50/p95 {first['p50']}/{first['p95']} ms, itl p50 {gap['p50']} ms"
