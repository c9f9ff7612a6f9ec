"""The engine is killed, stopped, or starved of memory: its requests fail with a clear error and the next ones succeed."""

import json
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.gateway_process import MODEL, Server, begin_story, config, eventually, read_to_end, running


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An engine that may crash often, and whose silence is noticed after a second."""
    text = config("context = 2048", "slots = 2", "hang_timeout_s = 1.0", "max_crashes = 50")
    with running(tmp_path_factory.mktemp("fragile"), text) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def _begin_and_end_quietly(fragile: Server) -> Iterator[None]:
    fragile.wait_until_ready()
    yield
    fragile.close_connections()


def last_error(connection: socket.socket) -> dict[str, str]:
    """The error event that ends a stream, which must still end as a stream does."""
    events = [line for line in read_to_end(connection).decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]"
    return json.loads(events[-2].removeprefix("data: "))["error"]


def answers_again(server: Server) -> None:
    eventually(lambda: server.chat(max_tokens=2).status_code == 200, "the engine answers again")


def test_engine_killed_in_the_middle_of_streams(fragile: Server) -> None:
    crashes = fragile.metric("baton_engine_crashes_total")
    engine = fragile.engine()
    streams = [begin_story(fragile), begin_story(fragile)]
    queued = fragile.open("Hello", max_tokens=4)
    eventually(lambda: fragile.load()[1] == 1, "one request waits")
    engine.kill()
    for stream in streams:
        error = last_error(stream)
        assert error["code"] == "engine_crashed"
        assert "SIGKILL" in error["message"]
    refused = read_to_end(queued, b"}}")
    assert refused.startswith(b"HTTP/1.1 502")
    assert b"engine_crashed" in refused
    answers_again(fragile)
    assert fragile.engine().pid != engine.pid
    assert fragile.metric("baton_engine_crashes_total") == crashes + 1


def test_official_client_does_not_notice_a_restart(fragile: Server) -> None:
    fragile.engine().kill()
    # What the SDK does by itself: it waits as `retry-after` says, and asks again.
    with fragile.openai().with_options(max_retries=20) as client:
        answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
    assert answer.choices[0].message.content is not None


def test_stopped_engine_is_replaced(fragile: Server) -> None:
    engine = fragile.engine()
    stream = begin_story(fragile)
    engine.send_signal(signal.SIGSTOP)
    error = last_error(stream)
    assert error["code"] == "engine_crashed"
    assert "hang_timeout_s" in error["message"]
    answers_again(fragile)
    assert not engine.is_running()


def test_readiness_fails_while_the_engine_restarts(fragile: Server) -> None:
    fragile.engine().kill()
    eventually(lambda: not fragile.is_ready(), "readiness has noticed")
    answer = fragile.http.get("/health/live")
    assert answer.status_code == 200
    answers_again(fragile)


def test_memory_that_runs_out_fails_requests_and_nothing_else(fragile: Server) -> None:
    assert fragile.chat(max_tokens=2).status_code == 200
    engine = fragile.engine()
    limit = engine.memory_info().vms + (4 << 20)
    engine.rlimit(psutil.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    # The first embedding makes a context of its own, which does not fit; a long prompt may or may not.
    refused = fragile.http.post("/v1/embeddings", json={"input": "word " * 500})
    assert refused.status_code in (500, 502, 503), refused.text
    assert refused.json()["error"]["message"]
    answer = fragile.chat("word " * 1500, max_tokens=4)
    assert answer.status_code in (200, 502, 503)
    if engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE:
        engine.kill()  # its limit is gone with it
    answers_again(fragile)


def test_model_that_does_not_fit_into_its_memory(tmp_path: Path) -> None:
    text = config("max_memory_bytes = 600000000") + '[models.scripted]\nengine = "fake"\n'
    with running(tmp_path, text) as server:
        eventually(lambda: server.http.get("/health/ready").json()["models"][MODEL]["state"] == "failed", "the load has failed")
        ready = server.http.get("/health/ready")
        assert ready.status_code == 503
        detail = ready.json()["models"][MODEL]["detail"]
        assert "memory" in detail, detail
        refused = server.chat(model=MODEL)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "model_unavailable"
        assert server.chat(model="scripted").status_code == 200


def test_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\xff" * 1000)
    text = f'[models.broken]\npath = "{tmp_path / "broken.gguf"}"\n[models.scripted]\nengine = "fake"\n'
    with running(tmp_path / "gateway", text) as server:
        eventually(lambda: server.http.get("/health/ready").json()["models"]["broken"]["state"] == "failed", "it is refused")
        assert "broken.gguf" in server.http.get("/health/ready").text
        assert server.metric("baton_engine_starts_total") == 0, "native code has seen the file"
        assert server.chat(model="scripted").status_code == 200
