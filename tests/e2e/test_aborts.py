"""200 clients that leave: afterwards slots, cells, memory, descriptors and tasks are where they began."""

import random
import socket
import time

import psutil
import pytest

from tests.e2e.gateway_process import Server, eventually

ABORTS = 200
MIB = 1 << 20


def _read_some(connection: socket.socket, count: int) -> None:
    """Read until `count` pieces of the stream are there."""
    seen = b""
    while seen.count(b"data:") < count:
        piece = connection.recv(65536)
        assert piece, f"the stream ended: {seen[-300:]!r}"
        seen += piece


def _abort_some(server: Server, rng: random.Random, count: int) -> None:
    """Leave in every state: before the first token, in the middle of a stream, queued, and without a stream."""
    for _ in range(count // 10):
        batch = []
        for position in range(10):
            content = f"{rng.random()} " + "and so on, " * rng.choice([1, 1, 30])
            stream = rng.random() < 0.7
            fields = {"max_tokens": 400, "ignore_eos": True, "n": rng.choice([1, 1, 2]), "stream": stream}
            batch.append((server.open(content, **fields), stream and position < 2))
        rng.shuffle(batch)
        for connection, reads in batch:
            if reads:
                _read_some(connection, 4)
            elif rng.random() < 0.2:
                time.sleep(0.03)  # so that not all leave in the same state
            connection.close()


def _figures(server: Server) -> dict[str, float]:
    gateway, engine = psutil.Process(server.process.pid), server.engine()
    names = ("baton_requests_in_flight", "baton_engine_running", "baton_engine_waiting")
    return {name: server.metric(name) for name in names} | {
        "gateway descriptors": gateway.num_fds(),
        "engine descriptors": engine.num_fds(),
        "gateway threads": gateway.num_threads(),
        "engine threads": engine.num_threads(),
    }


@pytest.mark.timeout(300)
def test_two_hundred_aborted_requests_leave_nothing_behind(start) -> None:
    settings = ("slots = 4", "queue = 32", "context = 2048", "kv_unified = true", "cache_bytes = 8000000")
    with start(*settings) as server:
        server.wait_until_ready()
        rng = random.Random(1)
        _abort_some(server, rng, 40)  # pools, caches and allocators have grown to what they need
        _settle(server)
        before, memory = _figures(server), _memory(server)
        _abort_some(server, rng, ABORTS)
        _settle(server)
        eventually(lambda: _figures(server) == before, f"{before} is back, it is {_figures(server)}")
        assert server.metric("baton_engine_kv_cells_used") <= 512, "only the prefix cache may hold cells"
        for name, used in _memory(server).items():
            assert used - memory[name] < 24 * MIB, f"{name} grew by {(used - memory[name]) / MIB:.0f} MiB"
        # As many as there are slots, at once: each slot is whole again.
        answers = [server.chat(f"Say {number}", n=4, max_tokens=2) for number in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert server.metric("baton_engine_crashes_total") == 0
        assert "Traceback" not in server.log()
        assert "ERROR" not in server.log()
        assert server.stop() == 0
        # Whatever was left behind would have been drained for half a minute, and then cut off.
        assert "are cut off" not in server.log()


def _settle(server: Server) -> None:
    server.wait_until_idle()
    assert server.chat(max_tokens=1).status_code == 200
    server.wait_until_idle()


def _memory(server: Server) -> dict[str, int]:
    return {"gateway": psutil.Process(server.process.pid).memory_info().rss, "engine": server.engine().memory_info().rss}
