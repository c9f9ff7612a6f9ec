"""Time limits around single waits: they end what is late, and nothing else."""

import asyncio

import pytest

from backends.errors import TimedOut, Unavailable
from backends.remote.guard import Guard


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_wait_beyond_its_limit_is_cancelled_and_says_what_was_late() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimedOut, match="too late") as caught:
        await Guard(loop).wait(forever(), loop.time() + 0.01, "too late")
    assert caught.value.code == "upstream_timeout"
    assert asyncio.current_task().cancelling() == 0


async def test_a_limit_that_moved_away_while_the_timer_ran_is_kept() -> None:
    loop = asyncio.get_running_loop()
    guard = Guard(loop)
    assert await guard.wait(asyncio.sleep(0, "a"), loop.time() + 0.01, "first") == "a"
    assert await guard.wait(asyncio.sleep(0.03, "b"), loop.time() + 5, "second") == "b"
    guard.stop()


async def test_a_limit_that_came_nearer_is_kept() -> None:
    loop = asyncio.get_running_loop()
    guard = Guard(loop)
    await guard.wait(asyncio.sleep(0), loop.time() + 60, "first")
    with pytest.raises(TimedOut, match="second"):
        await guard.wait(forever(), loop.time() + 0.01, "second")


async def test_time_between_two_waits_cancels_nobody() -> None:
    loop = asyncio.get_running_loop()
    guard = Guard(loop)
    await guard.wait(asyncio.sleep(0), loop.time() + 0.005, "late")
    await asyncio.sleep(0.02)
    assert await guard.wait(asyncio.sleep(0, 1), loop.time() + 5, "late") == 1
    guard.stop()


async def test_a_cancellation_from_outside_stays_one() -> None:
    loop = asyncio.get_running_loop()
    guard = Guard(loop)
    task = asyncio.create_task(guard.wait(forever(), loop.time() + 60, "late"))
    await asyncio.sleep(0)
    task.cancel()
    guard.interrupt(Unavailable("closed"))
    with pytest.raises(asyncio.CancelledError):
        await task
    guard.stop()


async def test_an_interruption_ends_the_present_wait_and_all_later_ones() -> None:
    loop = asyncio.get_running_loop()
    guard = Guard(loop)
    task = asyncio.create_task(guard.wait(forever(), loop.time() + 60, "late"))
    await asyncio.sleep(0)
    guard.interrupt(Unavailable("closed"))
    with pytest.raises(Unavailable, match="closed"):
        await task
    with pytest.raises(Unavailable, match="closed"):
        await guard.wait(forever(), loop.time() + 60, "late")
    guard.stop()
