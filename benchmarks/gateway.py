"""`make bench ARGS=gateway`: Baton, LiteLLM, vllm-router and no gateway at all, before the same fake upstream.

All servers are alive all the time, and idle but for the one that is asked: every case of every repetition goes to each of them
in turn, so that noise hits all alike, and in another order each time. Whatever is compared is compared within one repetition;
the tables show medians and how far single repetitions strayed. Generator, upstream and gateway share the machine's cores.
Memory is measured afterwards, with a Baton of its own. Everything is kept under `benchmarks/results`.
"""

import argparse
import contextlib
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from steps import StepError

from benchmarks import gateway_memory, gateway_report, gateway_servers, report
from benchmarks.gateway_cases import BATON, CHUNKS, DIRECT, LITELLM, LOADS, VLLM_ROUTER, Load
from benchmarks.generator import generate
from benchmarks.goals import Round
from benchmarks.python_peers import LITELLM as LITELLM_PACKAGE
from benchmarks.python_peers import VLLM_ROUTER as VLLM_ROUTER_PACKAGE
from benchmarks.servers import BenchmarkError, Running
from benchmarks.upstream import MODEL

LOAD_TIMEOUT_S = 300.0
WARM_UP = 64
OPEN_FILES = 8192


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line of this comparison."""
    parser = argparse.ArgumentParser(
        prog="benchmarks gateway", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few requests and two repetitions: a first impression")
    parser.add_argument("--repetitions", type=int, help="of every case (default 5, quick 2)")
    return parser.parse_args(arguments)


def compare(options: argparse.Namespace) -> None:
    """Run the whole comparison.

    Raises:
        BenchmarkError: Baton could not be measured, or a request failed.
    """
    facts = report.machine() | {each.name: each.version for each in (LITELLM_PACKAGE, VLLM_ROUTER_PACKAGE)}
    report.warn_when_busy(facts)
    allow_many_connections()
    repetitions = options.repetitions or (2 if options.quick else 5)
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as name, contextlib.ExitStack() as stack:
        servers, absent = start(stack, Path(name))
        rounds = [one_round(servers, number, options.quick) for number in range(repetitions)]
    memory = gateway_memory.measure(options.quick)
    tables = gateway_report.tables(rounds, memory, absent)
    print("\n" + tables + "\n")
    stem = time.strftime("%Y-%m-%d", time.gmtime()) + "-gateway" + ("-quick" if options.quick else "")
    figures: dict[str, Any] = {"rounds": rounds, "memory": memory, "not_measured": absent}
    for path in report.write(stem, "Baton beside other gateways", tables, facts, figures):
        print(path)


def allow_many_connections() -> None:
    """Raise this process's limit of open files, which its children inherit, where the system lets it.

    Raises:
        BenchmarkError: too few files are allowed for the streams that are to be open at once.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if wanted < 3 * gateway_memory.OPEN_STREAMS:
        raise BenchmarkError(f"this user may open {hard} files at once, the benchmark needs {OPEN_FILES}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def start(stack: contextlib.ExitStack, folder: Path) -> tuple[dict[str, Running], dict[str, str]]:
    """Start the upstream and every gateway, and warm them up.

    Returns:
        servers by name, and why each of the others is not among them.
    """
    upstream = stack.enter_context(gateway_servers.upstream(folder, chunks=CHUNKS))
    servers = {DIRECT: upstream, BATON: stack.enter_context(gateway_servers.baton(upstream, folder))}
    absent: dict[str, str] = {}
    for name, starter in ((LITELLM, gateway_servers.litellm), (VLLM_ROUTER, gateway_servers.vllm_router)):
        try:
            servers[name] = stack.enter_context(starter(upstream, folder))
        except (StepError, BenchmarkError) as error:
            absent[name] = str(error).strip().splitlines()[-1]
            print(f"baton: {name} is not measured: {error}", flush=True)
    for server in servers.values():
        for stream in (False, True):
            send(server, users=8, requests=WARM_UP, stream=stream)
    return servers, absent


def one_round(servers: dict[str, Running], number: int, quick: bool) -> Round:
    """Send every case to every server, beginning with another one in each round."""
    first = number % len(servers)
    order = [*servers][first:] + [*servers][:first]
    measured: Round = {name: {} for name in servers}
    for load in LOADS:
        for name in order:
            measured[name][load.name] = one_load(servers[name], load, load.count(name, quick))
            print(f"{name:12} {load.name}: {brief(measured[name][load.name])}", flush=True)
    return measured


def one_load(server: Running, load: Load, requests: int) -> dict[str, Any]:
    """Send one case, and add the processor time of the server per request to the figures, in microseconds."""
    before = server.cpu_s()
    figures = send(server, users=load.users, requests=requests, stream=load.stream)
    return figures | {"server_cpu_us": round(1e6 * (server.cpu_s() - before) / requests, 1)}


def send(server: Running, *, users: int, requests: int, stream: bool) -> dict[str, Any]:
    """Send requests from a process of its own.

    Raises:
        BenchmarkError: one failed, or a stream was not whole.
    """
    arguments = ["--model", MODEL, "-c", str(users), "-n", str(requests)]
    arguments += ["--stream"] if stream else []
    arguments += ["--api-key", server.key] if server.key else []
    figures = generate("load", server.url, arguments, LOAD_TIMEOUT_S)
    if stream and figures["pieces"] != requests * CHUNKS:
        raise BenchmarkError(f"{server.url} sent {figures['pieces']} pieces of content, {requests * CHUNKS} were expected")
    return figures


def brief(figures: dict[str, Any]) -> str:
    """Say one case in one line."""
    whole = figures["e2e_ms"]
    return f"{figures['rps']} /s, p50/p99 {whole['p50']}/{whole['p99']} ms, server CPU {figures['server_cpu_us']} us each"
