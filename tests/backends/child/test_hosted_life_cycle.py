"""Start, close and what the machine sees of a child: nothing is left behind in any state."""

import asyncio
import gc
import logging
import os
from pathlib import Path

import pytest

from backends.errors import Unavailable
from tests.backends.child.conftest import ask, children, play, ready, until


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def proc(pid: int | str, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


async def test_before_start_requests_are_refused(start) -> None:
    backend = await start(started=False)
    assert (await backend.health()).state == "stopped"
    with pytest.raises(Unavailable, match="not started"):
        await play(backend, "say 1")
    await backend.close()


async def test_start_returns_at_once_and_twice_is_once(start) -> None:
    backend = await start()
    await backend.start()
    assert (await backend.health()).state == "loading"
    await ready(backend)
    assert len(children()) == 1


@pytest.mark.parametrize("load", ["never", "mute"])
async def test_close_while_loading_kills_the_child(start, load: str) -> None:
    backend = await start("--load", load)
    await until(backend, lambda _: bool(children()))
    await backend.close()
    assert children() == set()
    assert (await backend.health()).state == "stopped"


async def test_close_at_once_after_start_leaves_nothing(start) -> None:
    backend = await start()
    await backend.close()
    assert children() == set()
    with pytest.raises(Unavailable, match="stopped"):
        await play(backend, "say 1")


async def test_close_fails_what_runs_and_may_be_called_side_by_side(start) -> None:
    backend = await start()
    await ready(backend)
    stream = backend.generate(ask("say 1000000"))
    await anext(stream)
    waiting = asyncio.create_task(play(backend, "wait"))
    await until(backend, lambda health: health.running == 2)
    await asyncio.gather(backend.close(), backend.close())
    with pytest.raises(Unavailable):
        async for _ in stream:
            pass
    with pytest.raises(Unavailable):
        await waiting
    assert children() == set()
    await backend.close()


async def test_a_child_that_ignores_shutdown_is_killed(start) -> None:
    backend = await start("--ignore-shutdown")
    await ready(backend)
    await backend.close()
    assert children() == set()


async def test_close_while_given_up_and_while_waiting_to_restart(start) -> None:
    backend = await start("--load", "fail")
    await until(backend, lambda health: health.state == "failed")
    await backend.close()
    assert (await backend.health()).state == "stopped"
    backend = await start("--load", "crash", max_crashes=100)
    await until(backend, lambda health: health.counters["crashes_total"] >= 3)
    await backend.close()
    assert (await backend.health()).state == "stopped"


async def test_cancelling_the_supervision_leaves_nothing(start) -> None:
    backend = await start()
    await ready(backend)
    before = fds()
    backend._supervisor._task.cancel()
    await asyncio.wait({backend._supervisor._task})
    assert children() == set()
    assert fds() < before


async def test_50_restarts_leak_no_descriptor_or_process(start, monkeypatch) -> None:
    monkeypatch.setattr("backends.child.parent.restart_policy._LONGEST_DELAY_S", 0.0)
    backend = await start(max_crashes=1000)
    await ready(backend)
    before = fds()
    for restart in range(1, 51):
        pid = backend._supervisor.life.pid
        os.kill(pid, 9)
        await until(backend, lambda health, n=restart: health.counters["starts_total"] > n and health.state == "ready")
        assert len(children()) == 1
    gc.collect()
    assert fds() <= before


async def test_output_of_the_child_is_logged_line_by_line_and_bounded(start, caplog) -> None:
    caplog.set_level(logging.INFO, "baton.engine")
    backend = await start()
    await ready(backend)
    await play(backend, "print naïve \x1b[31mred " + "x" * 5000)
    await until(backend, lambda _: "naïve" in caplog.text)
    lines = [record.getMessage() for record in caplog.records if "naïve" in record.getMessage()]
    assert lines[0].startswith("scripted: naïve \ufffd[31mred xxx")
    assert lines[0].endswith("more characters]")
    assert len(lines[0]) < 2100


async def test_the_last_output_is_in_the_report_of_a_crash(start, caplog) -> None:
    backend = await start()
    await ready(backend)
    await play(backend, "print the last words")
    os.kill(backend._supervisor.life.pid, 6)
    await until(backend, lambda health: health.counters["crashes_total"] == 1)
    (report,) = [r.getMessage() for r in caplog.records if "Its last output" in r.getMessage()]
    assert "SIGABRT" in report
    assert "the last words" in report


async def test_the_kernel_will_take_the_child_before_the_gateway_and_writes_no_core(start) -> None:
    backend = await start()
    await ready(backend)
    pid = backend._supervisor.life.pid
    ours, childs = (int(proc(p, "oom_score_adj")) for p in ("self", pid))
    assert childs == min(1000, ours + 500)
    assert "Max core file size        0                    0" in proc(pid, "limits")
    assert os.getsid(pid) == pid  # Ctrl-C in the terminal does not reach it


async def test_a_child_inherits_its_end_of_its_own_socket_and_nothing_else(start) -> None:
    for _ in range(2):
        backend = await start()
        await ready(backend)
        folder = Path(f"/proc/{backend._supervisor.life.pid}/fd")
        kinds = [os.readlink(folder / fd).split(":")[0] for fd in os.listdir(folder)]
        assert sorted(kinds) == ["/dev/null", "pipe", "pipe", "socket"]


async def test_the_child_sees_the_end_of_the_stream_when_our_end_is_closed(start) -> None:
    backend = await start("--ignore-shutdown")
    await start()  # would hold the first one's socket open, had it inherited it
    await ready(backend)
    life = backend._supervisor.life
    life.channel.close()
    await asyncio.wait_for(asyncio.shield(life._process.exited), 10)
    assert life._process.exited.result() == 0
