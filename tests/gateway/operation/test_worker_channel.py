"""What the parent of the workers and a worker say to each other."""

import asyncio
import os

from gateway.worker_channel import RELOAD, STOP, Orders, describe_exit, open_channel
from gateway.workers import CRASH_WINDOW_S, MAX_CRASHES, Crashes


async def follow(*sent: bytes, hang_up: bool = False) -> list[str]:
    """What a worker does with these orders."""
    reports, theirs = open_channel()
    done: list[str] = []
    with reports.connection, theirs:
        Orders(theirs, lambda: done.append("stop"), lambda: done.append("reload")).follow()
        for order in sent:
            reports.order(order)
        if hang_up:
            reports.connection.close()
        for _ in range(5):
            await asyncio.sleep(0)
        asyncio.get_running_loop().remove_reader(theirs)
    return done


async def test_orders_are_carried_out_one_by_one():
    assert await follow(RELOAD, STOP, STOP) == ["reload", "stop", "stop"]


async def test_end_of_the_parent_is_one_order_to_stop():
    assert await follow(hang_up=True) == ["stop"]
    assert await follow(RELOAD, hang_up=True) == ["reload", "stop"]


async def test_parent_that_ends_while_a_worker_drains_does_not_hurry_it():
    assert await follow(STOP, hang_up=True) == ["stop"]


def test_reports_come_as_lines_however_they_are_cut():
    reports, theirs = open_channel()
    with reports.connection, theirs:
        orders = Orders(theirs, lambda: None, lambda: None)
        assert reports.read() == []
        orders.report("ready model a\nb")
        theirs.send(b"relo")
        assert reports.read() == ["ready model a b"]
        theirs.send(b"aded\n")
        assert reports.read() == ["reloaded"]
        theirs.close()
        assert reports.read() is None


def test_nobody_is_hurt_by_a_side_that_is_gone():
    reports, theirs = open_channel()
    with reports.connection:
        theirs.close()
        reports.order(STOP)
    reports, theirs = open_channel()
    with theirs:
        reports.connection.close()
        Orders(theirs, lambda: None, lambda: None).report("reloaded")


def test_line_without_an_end_is_kept_only_so_long():
    reports, theirs = open_channel()
    with reports.connection, theirs:
        theirs.setblocking(False)
        for _ in range(20):
            try:
                theirs.send(b"x" * (1 << 14))
            except BlockingIOError:
                break
            assert reports.read() == []
        assert len(reports._line) <= 1 << 16


def test_crashes_are_answered_slower_and_slower_and_then_not_at_all():
    crashes = Crashes()
    assert [crashes.delay_s(now) for now in range(MAX_CRASHES)] == [0.0, 0.5, 1.0, 2.0, None]


def test_crashes_are_forgotten_after_a_while():
    crashes = Crashes()
    assert [crashes.delay_s(now * CRASH_WINDOW_S) for now in range(20)] == [0.0] * 20


def test_end_of_a_process_is_described():
    assert describe_exit(9) == "was killed by signal 9"
    assert describe_exit(3 << 8) == "ended with exit code 3"
    assert os.waitstatus_to_exitcode(3 << 8) == 3
