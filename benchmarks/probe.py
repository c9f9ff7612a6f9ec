"""Asks one URL again and again until its standard input closes, and prints how long the answers took, as one line of JSON.

    python -m benchmarks.probe http://127.0.0.1:8000/health/live [--interval-ms 10] < pipe

A process of its own, because inside a load generator it would measure how busy that is.
"""

import argparse
import asyncio
import os
import sys
from urllib.parse import urlsplit

import msgspec
import uvloop

from benchmarks.load import percentiles
from benchmarks.wire import Connection, Target

TIMEOUT_S = 10.0


async def probe(url: str, interval_s: float, stop: asyncio.Event) -> dict[str, object]:
    """Ask until `stop` is set. Latencies are in milliseconds; an answer that is not a 200 counts as an error."""
    parts = urlsplit(url)
    target = Target(host=str(parts.hostname), port=parts.port or 80, path=parts.path, key="none")
    connection, took, errors = Connection(target), list[float](), 0
    while not stop.is_set():
        reply = await connection.ask(target.get(), TIMEOUT_S)
        took.append(reply.e2e_s)
        errors += reply.status != 200
        await asyncio.sleep(interval_s)
    await connection.close()
    return {"n": len(took), "errors": errors, "e2e_ms": percentiles(took)}


async def _until_input_closes(url: str, interval_s: float) -> dict[str, object]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            stop.set()

    loop.add_reader(sys.stdin.fileno(), on_input)
    try:
        return await probe(url, interval_s, stop)
    finally:
        loop.remove_reader(sys.stdin.fileno())


def main() -> None:
    """Parse the command line, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--interval-ms", type=float, default=10.0, help="pause after each answer")
    options = parser.parse_args()
    figures = uvloop.run(_until_input_closes(options.url, options.interval_ms / 1e3))
    print(msgspec.json.encode(figures).decode())


if __name__ == "__main__":
    main()
