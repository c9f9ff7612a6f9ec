"""Prints how much processor time Baton takes per request: the figure that work on the gateway wants to lower.

    PYTHONPATH=.ci python -m benchmarks.profile_gateway [--users 32] [--requests 8000] [--stream] [--flame FILE.svg]

It depends much less on what else the machine does than requests per second. Runs a fake upstream and a Baton with an API key,
limits and metrics, and sends several rounds. The time is that of the gateway process as the system counts it, user and kernel;
what the generator and the upstream took is shown beside it. `--flame` records with py-spy, which must be installed.
"""

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import gateway_servers
from benchmarks.cases import median
from benchmarks.gateway import WARM_UP, send
from benchmarks.gateway_cases import CHUNKS
from benchmarks.servers import BenchmarkError, Running

_SAMPLES_PER_S = 500
_WRITING_S = 60.0


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", "--users", type=int, default=32, help="requests in flight (default 32)")
    parser.add_argument("-n", "--requests", type=int, default=8000, help="requests per round (default 8000)")
    parser.add_argument("--stream", action="store_true", help=f"streams of {CHUNKS} chunks")
    parser.add_argument("--rounds", type=int, default=3, help="(default 3)")
    parser.add_argument("--flame", type=Path, help="also record a flame graph of the gateway into this file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(prefix="baton-bench-") as name:
            profile(options, Path(name))
    except BenchmarkError as error:
        sys.exit(f"baton: {error}")


def profile(options: argparse.Namespace, folder: Path) -> None:
    """Send the rounds, print each and the median.

    Raises:
        BenchmarkError: a server did not start, or a request failed.
    """
    upstream = gateway_servers.upstream(folder, chunks=CHUNKS)
    with upstream as behind, gateway_servers.baton(behind, folder) as server:
        send(server, users=options.users, requests=max(WARM_UP, options.users), stream=options.stream)
        with _recorded(server, options.flame):
            taken = [one_round(server, behind, options) for _ in range(options.rounds)]
    print(f"median: {median(taken):.0f} us of CPU per request in the gateway ({min(taken):.0f}..{max(taken):.0f})")


def one_round(server: Running, behind: Running, options: argparse.Namespace) -> float:
    """Send one round and print it; returns the gateway's time, in microseconds per request."""
    before = (*_times(server), behind.cpu_s())
    figures = send(server, users=options.users, requests=options.requests, stream=options.stream)
    after = (*_times(server), behind.cpu_s())
    user, kernel, upstream = [1e6 * (b - a) / options.requests for a, b in zip(before, after, strict=True)]
    print(
        f"gateway {user + kernel:.0f} us (user {user:.0f}, kernel {kernel:.0f}), upstream {upstream:.0f} us, "
        f"generator {figures['cpu_us']:.0f} us; {figures['rps']:.0f} req/s, p50 {figures['e2e_ms']['p50']} ms",
        flush=True,
    )
    return float(user + kernel)


def _times(server: Running) -> tuple[float, float]:
    """Read the processor time of the process so far, in seconds: user and kernel."""
    times = server.process.cpu_times()
    return float(times.user), float(times.system)


@contextlib.contextmanager
def _recorded(server: Running, flame: Path | None) -> Iterator[None]:
    if flame is None:
        yield
        return
    pid, rate = str(server.process.pid), str(_SAMPLES_PER_S)
    spy = str(Path(sys.executable).with_name("py-spy"))
    command = [spy, "record", "--output", str(flame), "--pid", pid, "--rate", rate]
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    except OSError as error:
        raise BenchmarkError(f"py-spy cannot be started: {error.strerror}; pip install py-spy") from error
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)  # which makes it write what it has
        process.wait(_WRITING_S)


if __name__ == "__main__":
    main()
