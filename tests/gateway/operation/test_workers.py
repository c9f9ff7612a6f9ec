"""Several processes that look like one gateway."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.operation.patience import eventually
from tests.gateway.ops.conftest import ROOT, running

CONFIG = """
[server]
workers = {workers}
drain_timeout_s = {drain_timeout_s}
[models.fake]
engine = "fake"
token_delay_s = {delay_s}
replies = [{{ text = "{text}" }}]
"""
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}


def config(text: str = "x", *, workers: int = 2, delay_s: float = 0.0, drain_timeout_s: float = 30) -> str:
    return CONFIG.format(workers=workers, text=text, delay_s=delay_s, drain_timeout_s=drain_timeout_s)


def workers_of(gateway) -> list[psutil.Process]:
    return psutil.Process(gateway.process.pid).children()


def ask(gateway, *, times: int = 1) -> None:
    """Each request comes on a connection of its own, so all workers get some."""
    for _ in range(times):
        assert httpx.post(f"{gateway.url}/v1/chat/completions", json=CHAT).status_code == 200


def metric(gateway, name: str) -> float:
    text = httpx.get(f"{gateway.url}/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples)


@contextmanager
def stream(gateway) -> Iterator[Iterator[str]]:
    """Open a stream whose first token has come, and yield what follows line by line."""
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json={**CHAT, "stream": True}, timeout=30) as response:
        lines = response.iter_lines()
        assert any('"content":"x"' in line for line in lines)
        yield lines


def test_workers_start_share_the_port_and_count_together(tmp_path):
    with running(tmp_path / "gateway", config(workers=3)) as gateway:
        assert gateway.lines[0] == f"Baton listens on {gateway.url} and loads fake in 3 workers"
        assert gateway.lines[1] == f"Baton is ready: {gateway.url}  (model fake; 3 workers)"
        pids = {worker.pid for worker in workers_of(gateway)}
        assert len(pids) == 3
        ask(gateway, times=40)
        assert metric(gateway, "baton_requests_total") == 40
        assert metric(gateway, "baton_request_duration_seconds_count") == 40
        # The scrape itself, and the one of the line before.
        assert metric(gateway, "baton_http_responses_total") == 42
        text = httpx.get(f"{gateway.url}/metrics", headers={"accept": "application/openmetrics-text"}).text
        assert text.endswith("# EOF\n")
        assert gateway.stop() == 0
        assert gateway.process.stdout.read() == ""
        assert not [pid for pid in pids if psutil.pid_exists(pid)]
        assert "Traceback" not in gateway.log()


def test_connections_are_dealt_out_to_all_workers(tmp_path):
    with running(tmp_path / "gateway", config(workers=2)) as gateway:
        port = int(gateway.url.rpartition(":")[2])
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(64)]
        try:
            for connection in connections:
                connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
                assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            shares = [_connections(worker.pid, port) for worker in workers_of(gateway)]
        finally:
            for connection in connections:
                connection.close()
        assert sum(shares) == 64
        assert min(shares) > 8


def _connections(pid: int, port: int) -> int:
    listed = psutil.Process(pid).net_connections("tcp")
    return sum(one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port for one in listed)


def test_worker_that_dies_is_replaced_and_no_count_is_lost(tmp_path):
    with running(tmp_path / "gateway", config()) as gateway:
        ask(gateway, times=20)
        assert metric(gateway, "baton_requests_total") == 20
        before = {worker.pid for worker in workers_of(gateway)}
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: len({worker.pid for worker in workers_of(gateway)} - before) == 1)
        assert {worker.pid for worker in workers_of(gateway)} >= before - {victim}
        assert "was killed by signal 9, another one starts in 0 s" in gateway.log()
        assert metric(gateway, "baton_requests_total") == 20
        ask(gateway, times=10)
        assert metric(gateway, "baton_requests_total") == 30
        assert gateway.stop() == 0


def test_counts_never_fall_while_workers_come_and_go(tmp_path):
    with running(tmp_path / "gateway", config()) as gateway:
        seen = [0.0]
        for round in range(3):
            ask(gateway, times=4)
            seen.append(metric(gateway, "baton_requests_total"))
            os.kill(workers_of(gateway)[round % 2].pid, signal.SIGKILL)
            for _ in range(3):
                # A connection to the one that was killed may wait for its successor, or be lost with it.
                try:
                    seen.append(metric(gateway, "baton_requests_total"))
                except httpx.TransportError:
                    continue
        assert seen == sorted(seen)
        assert seen[-1] == 12


def test_crash_after_crash_ends_the_gateway_with_1(tmp_path):
    with running(tmp_path / "gateway", config()) as gateway:
        other, victim = sorted(worker.pid for worker in workers_of(gateway))
        for crashes in range(1, 5):
            os.kill(victim, signal.SIGKILL)
            eventually(lambda n=crashes: gateway.log().count("another one starts") == n)
            eventually(lambda: len(_ready(gateway)) == 2)
            victim = next(worker.pid for worker in _ready(gateway) if worker.pid != other)
        os.kill(victim, signal.SIGKILL)
        assert gateway.process.wait(30) == 1
        assert "too often: the gateway ends" in gateway.log()
        assert not psutil.pid_exists(other)


def _ready(gateway) -> list[psutil.Process]:
    return [worker for worker in workers_of(gateway) if worker.status() != psutil.STATUS_ZOMBIE]


def test_signal_to_all_processes_at_once_drains_once(tmp_path):
    """What a terminal and systemd do: the streams must still end whole."""
    with running(tmp_path / "gateway", config("x" * 60, delay_s=0.03)) as gateway, stream(gateway) as lines:
        for worker in workers_of(gateway):
            worker.send_signal(signal.SIGINT)
            worker.send_signal(signal.SIGTERM)
        gateway.process.send_signal(signal.SIGTERM)
        eventually(lambda: httpx.get(f"{gateway.url}/health/ready").status_code == 503)
        # Whichever worker gets a connection: also one with nothing left to do goes on to answer.
        assert {httpx.post(f"{gateway.url}/v1/chat/completions", json=CHAT).status_code for _ in range(10)} == {503}
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert gateway.process.wait(30) == 0


def test_second_signal_does_not_wait(tmp_path):
    with running(tmp_path / "gateway", config("x" * 9000, delay_s=0.05, drain_timeout_s=600)) as gateway, stream(gateway):
        gateway.process.send_signal(signal.SIGTERM)
        eventually(lambda: httpx.get(f"{gateway.url}/health/ready").status_code == 503)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(30) == 1


def test_workers_drain_and_end_when_their_parent_is_killed(tmp_path):
    (tmp_path / "tmp").mkdir()
    with running(tmp_path / "gateway", config("x" * 40, delay_s=0.03), TMPDIR=str(tmp_path / "tmp")) as gateway:
        with stream(gateway) as lines:
            workers = workers_of(gateway)
            gateway.process.kill()
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        _, alive = psutil.wait_procs(workers, timeout=20)
        assert not alive
    assert list((tmp_path / "tmp").iterdir()) == []


def test_one_worker_is_asked_to_reload_and_all_do(tmp_path):
    with running(tmp_path / "gateway", config("old")) as gateway:
        (tmp_path / "gateway" / "gateway.toml").write_text(config("new"))
        assert httpx.post(f"{gateway.url}/admin/reload").json()["changed"] == ["fake"]
        assert _answers(gateway) == {"new"}
        os.kill(workers_of(gateway)[0].pid, signal.SIGKILL)
        eventually(lambda: len(_ready(gateway)) == 2)
        assert _answers(gateway) == {"new"}


def test_signal_makes_all_workers_reload_unless_the_file_is_bad(tmp_path):
    file = tmp_path / "gateway" / "gateway.toml"
    with running(tmp_path / "gateway", config("old")) as gateway:
        file.write_text(config("bad") + "what = 1\n")
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda: "not reloaded: models.fake.what: unknown key" in gateway.log())
        assert _answers(gateway) == {"old"}
        file.write_text(config("new"))
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda: gateway.log().count("the configuration was reloaded: changed fake") == 2)
        assert _answers(gateway) == {"new"}


def _answers(gateway) -> set[str]:
    found = set()
    for _ in range(12):
        response = httpx.post(f"{gateway.url}/v1/chat/completions", json=CHAT)
        found.add(response.json()["choices"][0]["message"]["content"])
    return found


def test_gguf_models_and_several_workers_exclude_each_other(run_baton, tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    result = run_baton("serve", "--model", str(tmp_path / "tiny.gguf"), "--workers", "2", "--port", "0")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "baton: models.tiny: 2 workers (server.workers) would load this model 2 times. Serve it by a Baton of its own "
        'with one worker, and name that one here with engine = "remote"\n'
    )


def test_busy_port_is_noticed_also_where_ports_are_shared(run_baton, tmp_path):
    with running(tmp_path / "gateway", config()) as gateway:
        port = gateway.url.rpartition(":")[2]
        result = run_baton("serve", "--fake", "--workers", "2", "--port", port)
        assert result.returncode == 1
        assert f"cannot listen on 127.0.0.1:{port}" in result.stderr


def test_backend_that_cannot_be_built_is_one_clear_line_from_one_process(run_baton, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text('[server]\nworkers = 2\n[models.r]\nengine = "remote"\nurl = "http://x"\napi_key_env = "NO_SUCH_KEY"\n')
    result = run_baton("serve", "--config", str(file), "--port", "0")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("baton: models.r: the environment variable NO_SUCH_KEY holds no API key")
    assert result.stderr.count("\n") == 1


NEVER_READY = """
import sys
from backends.fake import FakeModel
from gateway.config import ServerConfig, Settings
from gateway.server import serve
from gateway.workers import Workers

async def end_at_once(self, worker, channel):
    return 3

Workers._serve = end_at_once
settings = Settings(server=ServerConfig(port=0, workers=2), models={"fake": FakeModel()})
sys.exit(serve(lambda: settings))
"""


def test_worker_that_never_gets_ready_ends_the_gateway():
    result = subprocess.run([sys.executable, "-c", NEVER_READY], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "ended with exit code 3, before it was ready: the gateway ends" in result.stderr
    assert "Baton is ready" not in result.stdout


def test_temporary_folder_too_deep_for_sockets_is_one_clear_line(run_baton, tmp_path):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    result = run_baton("serve", "--fake", "--workers", "2", "--port", "0", TMPDIR=str(deep))
    assert result.returncode == 1
    assert result.stderr.startswith("baton: TMPDIR: ")
    assert result.stderr.count("\n") == 1
    assert list(deep.iterdir()) == []


def test_processes_of_a_gateway_leave_nothing_in_the_temporary_folder(tmp_path):
    (tmp_path / "tmp").mkdir()
    with running(tmp_path / "gateway", config(), TMPDIR=str(tmp_path / "tmp")) as gateway:
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        assert gateway.stop() == 0
    assert list((tmp_path / "tmp").iterdir()) == []
