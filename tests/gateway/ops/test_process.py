"""The life of the process: start, ready, drain, end."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

SLOW = """
[server]
drain_timeout_s = {drain_timeout_s}

[models.fake]
engine = "fake"
token_delay_s = 0.05
replies = [{{ text = "{text}" }}]
"""
CHAT = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


def slow(*, num_tokens: int, drain_timeout_s: float = 30) -> str:
    return SLOW.format(drain_timeout_s=drain_timeout_s, text="x" * num_tokens)


@contextmanager
def stream(gateway) -> Iterator[Iterator[str]]:
    """Open a stream whose first token has come, and yield what follows line by line."""
    with gateway.client.stream("POST", "/v1/chat/completions", json=CHAT) as response:
        lines = response.iter_lines()
        assert any('"content":"x"' in line for line in lines)
        yield lines


def wait_for_drain(gateway) -> httpx.Response:
    """Ask for readiness until it fails. Every question is a new connection: the socket must still listen."""
    while True:
        response = httpx.get(f"{gateway.url}/health/ready")
        if response.status_code == 503:
            return response


def test_two_lines_say_where_it_listens_and_when_it_is_ready(start):
    with start() as gateway:
        listening, ready = gateway.lines
        assert listening == f"Baton listens on {gateway.url} and loads fake"
        assert ready == f"Baton is ready: {gateway.url}  (model fake)"
        assert gateway.client.get("/health/ready").status_code == 200
        assert gateway.stop() == 0
        assert gateway.process.stdout.read() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_server_ends_at_once_with_0(start, number):
    with start(slow(num_tokens=1, drain_timeout_s=60)) as gateway:
        gateway.client.get("/v1/models")  # leaves a connection open
        assert gateway.stop(number) == 0
        assert "Traceback" not in gateway.log()


def test_running_stream_ends_whole_while_new_requests_are_refused(start):
    with start(slow(num_tokens=60)) as gateway, stream(gateway) as lines:
        gateway.process.send_signal(signal.SIGTERM)
        assert wait_for_drain(gateway).json()["status"] == "draining"
        refused = httpx.post(f"{gateway.url}/v1/chat/completions", json=CHAT)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "2"
        assert refused.json()["error"]["code"] == "engine_overloaded"
        assert httpx.get(f"{gateway.url}/health/live").status_code == 200
        assert httpx.get(f"{gateway.url}/metrics").status_code == 200
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert not [line for line in rest if '"error"' in line]
        assert gateway.process.wait(30) == 0


def test_stream_that_outlives_the_drain_ends_with_an_error_event(start):
    with start(slow(num_tokens=10_000, drain_timeout_s=0.2)) as gateway, stream(gateway) as lines:
        gateway.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
        assert '"error"' in "".join(rest[-2:])
        assert gateway.process.wait(30) == 0
        assert "cut off" in gateway.log()


def test_second_signal_does_not_wait_for_streams(start):
    with start(slow(num_tokens=10_000, drain_timeout_s=600)) as gateway, stream(gateway):
        gateway.process.send_signal(signal.SIGTERM)
        wait_for_drain(gateway)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(30) == 1


def test_client_that_leaves_while_it_drains_lets_the_server_end(start):
    with start(slow(num_tokens=10_000, drain_timeout_s=600)) as gateway:
        with stream(gateway):
            gateway.process.send_signal(signal.SIGTERM)
            wait_for_drain(gateway)
        gateway.client.close()
        assert gateway.process.wait(30) == 0


def test_busy_port_is_one_clear_line(run_baton):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_baton("serve", "--fake", "--port", str(port))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr


def test_host_that_does_not_exist_is_one_clear_line(run_baton):
    result = run_baton("serve", "--fake", "--host", "203.0.113.1", BATON_API_KEY="key")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1


def test_file_that_is_no_model_ends_the_server_with_its_reason(run_baton, tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"this is no model")
    result = run_baton("serve", "--model", str(file), "--port", "0")
    assert result.returncode == 1
    assert "baton: model broken did not start: " in result.stderr
    assert "Baton is ready" not in result.stdout


def test_server_serves_on_when_nobody_reads_its_output(tmp_path, running_gateway):
    with running_gateway(tmp_path / "gateway") as gateway:
        gateway.process.stdout.close()
        assert gateway.client.get("/health/ready").status_code == 200
        assert gateway.stop() == 0


def test_ipv6_loopback_is_served_when_the_machine_has_it(start):
    if not _has_ipv6():
        with pytest.raises(AssertionError, match="cannot listen"), start(slow(num_tokens=1), BATON_SERVER__HOST="::1"):
            pass
        return
    with start(slow(num_tokens=1), BATON_SERVER__HOST="::1") as gateway:
        assert gateway.url.startswith("http://[::1]:")
        assert gateway.client.get("/health/live").status_code == 200


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_idle_gateway_stays_small(start):
    with start() as gateway:
        for _ in range(20):
            assert gateway.client.post("/v1/chat/completions", json={**CHAT, "stream": False}).status_code == 200
        status = subprocess.run(
            ["cat", f"/proc/{gateway.process.pid}/status"], capture_output=True, text=True, check=True
        ).stdout
        rss_kib = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
        assert rss_kib < 120 * 1024
