"""Whatever way a child ends, its requests end with a reason, and another child takes over, or the model is given up."""

import asyncio
import os
import re
import signal

import pytest

from backends.child.config import ChildConfig
from backends.errors import Failed, Unavailable
from backends.types import ModelCard
from tests.backends.child.conftest import ask, play, ready, text_of, until


async def crashed(backend, prompt: str) -> Failed:
    with pytest.raises(Failed) as caught:
        await play(backend, prompt)
    assert caught.value.code == "engine_crashed"
    return caught.value


async def test_kill_9_in_the_middle_of_a_stream_fails_it_and_the_next_request_works(start) -> None:
    backend = await start()
    await ready(backend)
    streams = [backend.generate(ask("say 1000000")) for _ in range(2)]
    seen = [await anext(deltas) for deltas in streams]
    assert all(delta.text for delta in seen)
    os.kill(backend._supervisor.life.pid, signal.SIGKILL)
    for deltas in streams:
        with pytest.raises(Failed, match=r"killed by signal 9 \(SIGKILL, out of memory\?\)") as caught:
            async for _ in deltas:
                pass
        assert caught.value.code == "engine_crashed"
    await ready(backend)
    assert text_of(await play(backend, "say 3")) == "0 1 2 "


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("exit 3", "exited with status 3"),
        ("exit 0", "exited with status 0"),
        ("kill", "killed by signal 9"),
        ("garbage", "17 bytes that are no message"),
        ("nonsense", "bytes that are no message"),
        ("huge", "sent a message of 4294967295 bytes"),
        ("step 121", r"one step for more than 120 s \(step_timeout_s\)"),
    ],
)
async def test_the_reason_is_told_and_the_model_comes_back(start, prompt: str, reason: str) -> None:
    backend = await start()
    await ready(backend)
    waiting = asyncio.create_task(crashed(backend, "wait"))
    await asyncio.sleep(0)
    await crashed(backend, prompt)
    error = await waiting
    assert re.search(reason, error.message)
    await ready(backend)
    assert await play(backend, "say 1")


async def test_a_stopped_child_is_killed_and_replaced(start) -> None:
    backend = await start(hang_timeout_s=0.5)
    await ready(backend)
    pid = backend._supervisor.life.pid
    error = await crashed(backend, "stop")
    assert "no sign of life for 0.5 s" in error.message
    await ready(backend)
    assert backend._supervisor.life.pid != pid
    assert await play(backend, "say 1")


def stand_still_until_ended(pid: int) -> None:
    """Block the event loop, so that the end of a child is noticed before what it sent was read. It stays to be reaped."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_what_was_sent_before_the_end_still_arrives(start) -> None:
    backend = await start()
    await ready(backend)
    answer = asyncio.create_task(play(backend, "burst 1000"))
    await asyncio.sleep(0)
    stand_still_until_ended(backend._supervisor.life.pid)
    deltas = await answer
    assert text_of(deltas) == "".join(f"{number} " for number in range(1000))
    assert deltas[-1].usage.completion_tokens == 1000
    await until(backend, lambda health: health.counters["crashes_total"] == 1)


async def test_counters_never_shrink_when_a_child_is_replaced(start) -> None:
    backend = await start()
    await ready(backend)
    for _ in range(3):
        await play(backend, "say 1")
    await until(backend, lambda health: health.counters["generated_total"] == 3)
    await crashed(backend, "exit 1")
    await ready(backend)
    health = await until(backend, lambda health: health.counters["generated_total"] >= 3)
    assert (health.counters["starts_total"], health.counters["crashes_total"]) == (2, 1)


async def test_while_it_restarts_requests_are_told_when_to_come_back(start) -> None:
    backend = await start()
    await ready(backend)
    await crashed(backend, "exit 7")
    assert (await backend.health()).state == "loading"
    with pytest.raises(Unavailable, match="loading") as caught:
        await play(backend, "say 1")
    assert caught.value.retry_after_s >= 1
    await until(backend, lambda health: "status 7" in health.detail or health.state == "ready")


async def test_too_many_crashes_end_in_failure_and_a_request_after_the_rest_tries_again(start) -> None:
    backend = await start(max_crashes=2, crash_window_s=1.5)
    await ready(backend)
    for _ in range(2):
        await ready(backend)
        await crashed(backend, "exit 3")
    health = await until(backend, lambda health: health.state == "failed")
    assert "crashed 2 times" in health.detail
    with pytest.raises(Unavailable, match="status 3") as caught:
        await play(backend, "say 1")
    assert 0 < caught.value.retry_after_s <= 1.5
    # Nothing but a request after the rest brings it back.
    async with asyncio.timeout(15):
        while (await backend.health()).state == "failed":
            with pytest.raises(Unavailable):
                await play(backend, "say 1")
            await asyncio.sleep(0.02)
    await ready(backend)
    assert await play(backend, "say 1")


async def test_a_child_that_always_crashes_while_loading_is_given_up(start) -> None:
    backend = await start("--load", "crash", max_crashes=3, crash_window_s=60.0)
    health = await until(backend, lambda health: health.state == "failed")
    assert "exited with status 3" in health.detail
    assert health.counters["starts_total"] == 3


async def test_a_child_that_says_it_cannot_load_is_not_tried_again(start) -> None:
    backend = await start("--load", "fail")
    health = await until(backend, lambda health: health.state == "failed")
    assert health.detail == "The file does not fit into memory: 2 GiB of 1 GiB."
    assert health.counters["starts_total"] == 1
    with pytest.raises(Unavailable, match="2 GiB of 1 GiB"):
        await play(backend, "say 1")


@pytest.mark.parametrize("load", ["never", "mute"])
async def test_loading_has_a_limit(start, load: str) -> None:
    backend = await start("--load", load, load_timeout_s=0.5)
    health = await until(backend, lambda health: health.state == "failed")
    assert "load_timeout_s" in health.detail


async def test_a_refused_file_is_never_given_to_a_child(start, model_file) -> None:
    content = model_file.read_bytes()
    model_file.write_bytes(b"NODEL" + content[5:])
    backend = await start(crash_window_s=0.2)
    health = await until(backend, lambda health: health.state == "failed")
    assert health.counters["starts_total"] == 0
    with pytest.raises(Unavailable, match=r"tiny\.model is no model"):
        await play(backend, "say 1")
    model_file.write_bytes(content)
    async with asyncio.timeout(10):
        while (await backend.health()).state != "ready":
            with pytest.raises(Unavailable):
                await play(backend, "say 1")
            await asyncio.sleep(0.02)


async def test_a_fault_of_our_own_ends_in_failure_and_not_in_eternal_loading(start) -> None:
    def broken(name: str, config: ChildConfig) -> ModelCard:
        raise RuntimeError("a bug")

    backend = await start(describe=broken)
    health = await until(backend, lambda health: health.state == "failed")
    assert "see the log" in health.detail


async def test_a_command_that_does_not_exist_ends_in_failure(start) -> None:
    backend = await start(command=("/nowhere/python",), max_crashes=2)
    health = await until(backend, lambda health: health.state == "failed")
    assert "No such file" in health.detail
