"""A metric is watched while requests run; one that is not there is an error and no empty figure."""

import threading
from typing import cast

import pytest

from benchmarks.servers import BenchmarkError, Running
from benchmarks.watch import BUSY, watched


class Server:
    """Reports these metrics one after another, the last one for ever, and says when they have all been read."""

    def __init__(self, *metrics: dict[str, float]) -> None:
        self._metrics = list(metrics)
        self.all_read = threading.Event()

    def metrics(self) -> dict[str, float]:
        if len(self._metrics) == 1:
            self.all_read.set()
            return self._metrics[0]
        return self._metrics.pop(0)


def test_values_count_while_requests_run() -> None:
    idle = {BUSY: 0.0, "waste": 0.0}
    server = Server(idle, {BUSY: 2.0, "waste": 0.25}, {BUSY: 1.0, "waste": 0.5}, idle)
    with watched(cast(Running, server), "waste", 0.0) as values:
        assert server.all_read.wait(5.0)
    assert values == [0.25, 0.5]


def test_a_metric_that_is_missing_is_an_error() -> None:
    server = Server({BUSY: 1.0})
    with pytest.raises(BenchmarkError, match="no waste"), watched(cast(Running, server), "waste", 0.0):
        assert server.all_read.wait(5.0)


def test_an_error_of_the_block_itself_is_not_hidden() -> None:
    server = Server({BUSY: 1.0, "waste": 0.5})
    with pytest.raises(ValueError, match="mine"), watched(cast(Running, server), "waste", 0.0):
        raise ValueError("mine")
