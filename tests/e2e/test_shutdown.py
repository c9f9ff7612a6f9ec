"""The end of a gateway with a real engine: drained by SIGTERM, or killed."""

import signal

import httpx
import psutil

from tests.e2e.gateway_process import Server, begin_story, eventually, read_to_end


def is_gone(process: psutil.Process) -> bool:
    """Ended; where nobody collects orphans it stays in the table as a zombie."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_sigterm_lets_a_stream_finish_and_refuses_new_requests(start) -> None:
    with start("context = 2048", "slots = 2") as server:
        server.wait_until_ready()
        engine = server.engine()
        stream = server.open("Tell a story.", max_tokens=200, ignore_eos=True, stream=True)
        first = stream.recv(65536)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: httpx.get(f"{server.url}/health/ready").json()["status"] == "draining", "it drains")
        refused = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        rest = (first + read_to_end(stream)).decode()
        assert '"finish_reason":"length"' in rest
        assert '"error"' not in rest
        assert server.process.wait(30) == 0
        assert is_gone(engine)


def test_sigterm_during_a_long_prompt_ends_within_the_grace(start) -> None:
    with start("context = 8192", "slots = 1", server="drain_timeout_s = 0.5") as server:
        server.wait_until_ready()
        engine = server.engine()
        waiting = server.open("word " * 7000, max_tokens=500, ignore_eos=True)
        eventually(lambda: server.load()[0] == 1, "the prompt is computed")
        assert server.stop() == 0
        assert b" 503 " in waiting.recv(65536)
        assert is_gone(engine)


def test_engine_dies_with_a_gateway_that_is_killed(start) -> None:
    server: Server
    with start() as server:
        server.wait_until_ready()
        engine = server.engine()
        begin_story(server)
        server.process.kill()
        server.process.wait()
        eventually(lambda: is_gone(engine), "the engine has ended")
