"""The admission queue, request by request: who runs, who waits, who is refused and with which words."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from backends.errors import Overloaded
from gateway.admission.config import AdmissionConfig
from gateway.admission.queue import Queue
from gateway.admission.waiter import Ticket
from gateway.call import Call
from gateway.identity import Identity
from gateway.priority import Priority
from tests.gateway.admission.virtual_time import VirtualTimeLoop

T = TypeVar("T")


def run(test: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(test)


def now() -> float:
    return asyncio.get_running_loop().time()


def new_queue(max_running: int = 1, max_waiting: int = 8, max_wait_s: float = 60.0) -> Queue:
    return Queue(AdmissionConfig(max_running=max_running, max_waiting=max_waiting, max_wait_s=max_wait_s), now)


def new_call(key: str = "a", priority: Priority = "standard", *, units: int = 1, weight: float = 1.0) -> Call:
    call = Call("id", "chat", "model", Identity(key_id=key, tenant=key, priority=priority, weight=weight))
    call.units = units
    return call


class Crowd:
    """Tasks that ask for admission; `order` names those that were let in, in order."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.order: list[str] = []
        self.tickets: dict[str, Ticket] = {}

    async def come(self, name: str, call: Call) -> "asyncio.Task[Ticket]":
        async def ask() -> Ticket:
            ticket = await self.queue.admit(call)
            self.order.append(name)
            self.tickets[name] = ticket
            return ticket

        task = asyncio.create_task(ask())
        await asyncio.sleep(0)
        return task

    async def play_out(self, first: Ticket) -> list[str]:
        """Release one after another until nobody waits."""
        first.release()
        for _ in range(1000):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if not self.tickets:
                return self.order
            self.tickets.pop(next(iter(self.tickets))).release()
        raise AssertionError("the queue never ran dry")


def test_admits_at_once_while_there_is_room() -> None:
    async def test() -> None:
        queue, calls = new_queue(max_running=2), [new_call(), new_call()]
        tickets = [await queue.admit(call) for call in calls]
        assert queue.snapshot().running == 2
        assert calls[0].trail.waited_s == 0.0
        for ticket in tickets:
            ticket.release()
        assert queue.snapshot().running == 0

    run(test())


def test_the_fast_path_never_yields_to_the_loop() -> None:
    coroutine = Queue(AdmissionConfig(max_running=1)).admit(new_call())
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert isinstance(stopped.value.value, Ticket)


def test_a_second_release_changes_nothing() -> None:
    async def test() -> None:
        queue = new_queue(max_running=2)
        first, _ = await queue.admit(new_call()), await queue.admit(new_call())
        first.release()
        first.release()
        assert queue.snapshot().running == 1

    run(test())


def test_unlimited_queues_never_make_anybody_wait() -> None:
    async def test() -> None:
        queue = new_queue(max_running=0, max_waiting=0)
        for _ in range(500):
            await queue.admit(new_call(units=3))
        assert queue.snapshot().running == 1500

    run(test())


def test_a_better_class_goes_first_and_keys_inside_a_class_take_turns() -> None:
    async def test() -> list[str]:
        crowd = Crowd(new_queue())
        first = await crowd.queue.admit(new_call())
        await crowd.come("batch", new_call("c", "batch"))
        for name in ("a1", "a2", "a3"):
            await crowd.come(name, new_call("a"))
        await crowd.come("b1", new_call("b"))
        await crowd.come("now", new_call("d", "interactive"))
        return await crowd.play_out(first)

    assert run(test()) == ["now", "a1", "b1", "a2", "a3", "batch"]


def test_a_worse_class_gets_its_small_share_beside_any_load() -> None:
    async def test() -> list[str]:
        crowd = Crowd(new_queue(max_waiting=200))
        first = await crowd.queue.admit(new_call())
        for i in range(60):
            await crowd.come("interactive", new_call(f"i{i}", "interactive"))
        for _ in range(5):
            await crowd.come("standard", new_call("s", "standard"))
            await crowd.come("batch", new_call("b", "batch"))
        return (await crowd.play_out(first))[:42]

    order = run(test())
    assert order.count("standard") in (3, 4)
    assert order.count("batch") in (1, 2)
    assert order[10] == "standard"


def test_a_large_request_is_not_overtaken_by_small_ones_of_its_class() -> None:
    async def test() -> list[str]:
        crowd = Crowd(new_queue(max_running=4))
        tickets = [await crowd.queue.admit(new_call()) for _ in range(4)]
        await crowd.come("large", new_call("l", units=4))
        for i in range(3):
            await crowd.come("small", new_call(f"s{i}"))
        for ticket in tickets[:3]:
            ticket.release()
            await asyncio.sleep(0)
        assert crowd.order == []
        return await crowd.play_out(tickets[3])

    assert run(test()) == ["large", "small", "small", "small"]


def test_more_units_than_the_queue_has_count_as_all_of_them() -> None:
    async def test() -> None:
        queue = new_queue(max_running=2)
        ticket = await queue.admit(new_call(units=9))
        assert queue.snapshot().running == 2
        ticket.release()

    run(test())


def test_a_full_queue_refuses_the_newcomer_and_says_when_to_come_back() -> None:
    async def test() -> Overloaded:
        crowd = Crowd(new_queue(max_waiting=1))
        tickets = []
        for _ in range(30):
            tickets.append(await crowd.queue.admit(new_call()))
            await asyncio.sleep(4)
            tickets[-1].release()
        last = await crowd.queue.admit(new_call())
        waiting = await crowd.come("waiting", new_call())
        with pytest.raises(Overloaded) as refused:
            await crowd.queue.admit(new_call())
        assert not waiting.done()
        await crowd.play_out(last)
        assert crowd.queue.snapshot().refused == {"full": 1}
        return refused.value

    error = run(test())
    assert "1 requests may wait" in error.message
    assert error.code == "engine_overloaded"
    assert error.retry_after_s == pytest.approx(8.0)


async def _displacement(waiting: list[Call], newcomer: Call) -> tuple[list[bool], bool]:
    """Fill a queue, let one more come; who of them was refused, and was the newcomer?"""
    crowd = Crowd(new_queue(max_waiting=len(waiting)))
    first = await crowd.queue.admit(new_call())
    tasks = [await crowd.come(str(i), call) for i, call in enumerate(waiting)]
    last = await crowd.come("newcomer", newcomer)
    await asyncio.sleep(0)
    refused = [task.done() for task in tasks], last.done()
    await crowd.play_out(first)
    for task in (*tasks, last):
        with suppress(Overloaded):
            await task
    return refused


@pytest.mark.parametrize(
    ("waiting", "newcomer", "expected"),
    [
        ([("a", "standard"), ("a", "batch"), ("b", "batch")], ("c", "standard"), [False, False, True]),
        ([("a", "standard"), ("a", "standard")], ("a", "interactive"), [False, True]),
        ([("a", "interactive"), ("a", "interactive")], ("b", "standard"), None),
        ([("a", "standard"), ("b", "standard")], ("c", "standard"), None),
        ([("flood", "standard"), ("flood", "standard"), ("b", "standard")], ("c", "standard"), [False, True, False]),
        ([("flood", "standard"), ("b", "standard")], ("flood", "standard"), None),
        ([("a", "standard"), ("b", "standard"), ("b", "standard")], ("a", "standard"), None),
    ],
)
def test_a_full_queue_gives_a_place_to_whom_it_is_owed(
    waiting: list[tuple[str, Priority]], newcomer: tuple[str, Priority], expected: list[bool] | None
) -> None:
    refused, newcomer_refused = run(_displacement([new_call(*who) for who in waiting], new_call(*newcomer)))
    if expected is None:
        assert newcomer_refused
        assert not any(refused)
    else:
        assert not newcomer_refused
        assert refused == expected


@pytest.mark.parametrize(("deadline", "waited_s"), [(None, 5.0), (2.0, 2.0), (99.0, 5.0)])
def test_waiting_too_long_is_refused_with_queue_timeout(deadline: float | None, waited_s: float) -> None:
    async def test() -> tuple[Overloaded, float, float]:
        queue, call = new_queue(max_wait_s=5.0), new_call()
        ticket = await queue.admit(new_call())
        call.deadline = deadline
        with pytest.raises(Overloaded) as refused:
            await queue.admit(call)
        assert queue.snapshot().waiting["standard"] == 0
        ticket.release()
        assert queue.snapshot().running == 0
        return refused.value, call.trail.waited_s, now()

    error, trail_s, end = run(test())
    assert error.code == "queue_timeout"
    assert f"{waited_s:.1f} s" in error.message
    assert trail_s == end == pytest.approx(waited_s)


def test_a_call_whose_deadline_has_passed_never_begins() -> None:
    async def test() -> None:
        queue, call = new_queue(), new_call()
        call.deadline = now()
        with pytest.raises(Overloaded) as refused:
            await queue.admit(call)
        assert refused.value.code == "queue_timeout"
        assert queue.snapshot().running == 0

    run(test())


def _cancel_before(first: Ticket, waiting: "asyncio.Task[Ticket]") -> None:
    waiting.cancel()
    first.release()


def _cancel_after(first: Ticket, waiting: "asyncio.Task[Ticket]") -> None:
    first.release()
    waiting.cancel()


@pytest.mark.parametrize("race", [_cancel_before, _cancel_after])
def test_a_cancelled_waiter_never_keeps_the_place(race: Callable[[Ticket, "asyncio.Task[Ticket]"], None]) -> None:
    async def test() -> None:
        crowd = Crowd(new_queue())
        first = await crowd.queue.admit(new_call())
        gone, next_one = await crowd.come("gone", new_call()), await crowd.come("next", new_call())
        race(first, gone)
        assert await asyncio.wait_for(next_one, 1)
        assert gone.cancelled()
        assert crowd.order == ["next"]
        crowd.tickets["next"].release()
        assert crowd.queue.snapshot().running == 0

    run(test())


def test_cancelling_a_large_head_lets_the_small_ones_behind_it_in() -> None:
    async def test() -> None:
        crowd = Crowd(new_queue(max_running=2))
        await crowd.queue.admit(new_call())
        large = await crowd.come("large", new_call(units=2))
        small = await crowd.come("small", new_call())
        large.cancel()
        assert await asyncio.wait_for(small, 1)

    run(test())


def test_closing_refuses_all_that_wait_and_all_that_come() -> None:
    async def test() -> None:
        crowd = Crowd(new_queue(max_running=4))
        tickets = [await crowd.queue.admit(new_call()) for _ in range(3)]
        tasks = [await crowd.come(str(i), new_call(units=units)) for i, units in enumerate((4, 1, 1))]
        crowd.queue.close()
        for task in tasks:
            with pytest.raises(Overloaded, match="shutting down"):
                await task
        with pytest.raises(Overloaded, match="shutting down"):
            await crowd.queue.admit(new_call())
        for ticket in tickets:
            ticket.release()
        assert crowd.queue.snapshot().running == 0
        assert crowd.queue.snapshot().refused == {"closed": 4}

    run(test())


def test_waited_time_is_in_the_trail() -> None:
    async def test() -> None:
        crowd, call = Crowd(new_queue()), new_call()
        first = await crowd.queue.admit(new_call())
        await crowd.come("waits", call)
        await asyncio.sleep(3)
        await crowd.play_out(first)
        assert call.trail.waited_s == pytest.approx(3.0)

    run(test())
