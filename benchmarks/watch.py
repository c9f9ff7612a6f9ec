"""Looks at a metric of a server again and again while something else goes on."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.servers import BenchmarkError, Running

INTERVAL_S = 0.25
BUSY = "baton_engine_running"


@contextlib.contextmanager
def watched(server: Running, name: str, interval_s: float = INTERVAL_S) -> Iterator[list[float]]:
    """Collect the values that a metric has while requests run, until the end of the block.

    Raises:
        BenchmarkError: there is no such metric.
    """
    values: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(interval_s):
            metrics = server.metrics()
            if name not in metrics:
                raise BenchmarkError(f"/metrics has no {name}")
            if metrics.get(BUSY):
                values.append(metrics[name])

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield values
        finally:
            stop.set()
        watching.result()
