"""The admission queue under random arrivals, releases, cancels and waits; and the bounds that fair queueing promises."""

import asyncio
from contextlib import suppress
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from backends.errors import Overloaded
from gateway.admission.class_order import ClassOrder
from gateway.admission.config import AdmissionConfig
from gateway.admission.fair_line import FairLine
from gateway.admission.queue import Queue
from gateway.admission.waiter import Ticket, Waiter
from gateway.call import Call
from gateway.identity import Identity
from gateway.priority import PRIORITIES, Priority
from tests.gateway.admission.virtual_time import VirtualTimeLoop

CAPACITY, PLACES, MAX_WAIT_S = 4, 6, 30.0
WEIGHTS = {"a": 1.0, "b": 3.0, "c": 0.5}


class QueueMachine(RuleBasedStateMachine):
    """Any order of events; `idle` lets the loop run between them, or several happen in one of its iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        loop = self.runner.get_loop()
        config = AdmissionConfig(max_running=CAPACITY, max_waiting=PLACES, max_wait_s=MAX_WAIT_S)
        self.queue = Queue(config, loop.time)
        self.count = 0
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.running: dict[int, Ticket] = {}
        self.cancelled: set[int] = set()
        self.admitted: dict[tuple[str, Priority], list[int]] = {}

    def step(self, seconds: float = 0.0) -> None:
        async def wait() -> None:
            for _ in range(4):
                await asyncio.sleep(0)
            if seconds:
                await asyncio.sleep(seconds)

        self.runner.run(wait())

    async def ask(self, number: int, call: Call) -> None:
        with suppress(Overloaded):
            ticket = await self.queue.admit(call)
            assert number not in self.cancelled
            self.running[number] = ticket
            self.admitted.setdefault((call.identity.key_id, call.priority), []).append(number)

    @rule(key=st.sampled_from("abc"), priority=st.sampled_from(PRIORITIES), units=st.integers(1, 6), idle=st.booleans())
    def arrive(self, key: str, priority: Priority, units: int, idle: bool) -> None:
        call = Call("id", "chat", "m", Identity(key_id=key, tenant=key, priority=priority, weight=WEIGHTS[key]))
        call.units = units
        self.count += 1
        self.tasks[self.count] = self.runner.get_loop().create_task(self.ask(self.count, call))
        if idle:
            self.step()

    @rule(which=st.integers(0, 99), idle=st.booleans())
    def release(self, which: int, idle: bool) -> None:
        if self.running:
            number = list(self.running)[which % len(self.running)]
            ticket = self.running.pop(number)
            ticket.release()
            ticket.release()
            if idle:
                self.step()

    @rule(which=st.integers(0, 99), idle=st.booleans())
    def cancel(self, which: int, idle: bool) -> None:
        open_tasks = [number for number, task in self.tasks.items() if not task.done()]
        if open_tasks:
            number = open_tasks[which % len(open_tasks)]
            self.cancelled.add(number)
            self.tasks[number].cancel()
            if idle:
                self.step()

    @rule(seconds=st.floats(0.1, 20))
    def let_time_pass(self, seconds: float) -> None:
        self.step(seconds)

    @invariant()
    def never_more_than_capacity(self) -> None:
        assert self.queue.snapshot().running <= CAPACITY

    @invariant()
    def never_more_than_the_places(self) -> None:
        assert sum(self.queue.snapshot().waiting.values()) <= PLACES

    @invariant()
    def first_come_first_served_inside_a_key_and_class(self) -> None:
        assert all(numbers == sorted(numbers) for numbers in self.admitted.values())

    @rule()
    def books_agree(self) -> None:
        self.step()
        snapshot = self.queue.snapshot()
        assert snapshot.running == sum(ticket.units for ticket in self.running.values())
        still_waiting = sum(not task.done() for task in self.tasks.values())
        assert sum(snapshot.waiting.values()) == still_waiting
        assert snapshot.running or not still_waiting

    def teardown(self) -> None:
        self.books_agree()
        for _ in range(10 * PLACES):
            for number in list(self.running):
                self.running.pop(number).release()
            self.step()
        assert all(task.done() for task in self.tasks.values())
        assert self.queue.snapshot().running == 0
        for task in self.tasks.values():
            if not task.cancelled():
                task.result()
        self.runner.close()


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueue = QueueMachine.TestCase


def _waiter(key: str, rank: int, units: int, weight: float) -> Waiter:
    call = Call("id", "chat", "m", Identity(key_id=key, tenant=key, priority=PRIORITIES[rank], weight=weight))
    # A line never looks at the future.
    return Waiter(call, units, 0.0, None)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0]), min_size=2, max_size=4),
    units=st.lists(st.integers(1, 4), min_size=8, max_size=8),
    departures=st.sets(st.integers(0, 300), max_size=40),
)
def test_keys_that_always_wait_get_units_by_their_weights(weights: list[float], units: list[int], departures: set[int]) -> None:
    line, served, pushed = FairLine(), [0] * len(weights), 0

    def push(key: int) -> None:
        nonlocal pushed
        line.push(_waiter(str(key), 1, units[pushed % len(units)], weights[key]))
        pushed += 1

    for key in range(len(weights)):
        push(key)
        push(key)
    for step in range(300):
        if step in departures:
            gone = line.first()
            push(int(gone.key))
            assert line.remove(gone)
        first = line.pop_first()
        served[int(first.key)] += first.units
        push(int(first.key))
        for i, j in combinations(range(len(weights)), 2):
            bound = max(units) / weights[i] + max(units) / weights[j]
            assert abs(served[i] / weights[i] - served[j] / weights[j]) <= bound + 1e-6


@settings(max_examples=100, deadline=None)
@given(units=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_no_class_starves_and_none_gets_more_than_its_share(units: list[int]) -> None:
    lines = [FairLine() for _ in PRIORITIES]
    order, served, largest = ClassOrder(lines), [0, 0, 0], max(units)
    for rank, line in enumerate(lines):
        for i in range(400):
            line.push(_waiter("k", rank, units[(rank + i) % len(units)], 1.0))
    while lines[0]:
        rank = order.next_rank()
        assert rank is not None
        first = lines[rank].first()
        order.granted(rank, first.units)
        assert lines[rank].pop_first() is first
        served[rank] += first.units
        assert abs(served[1] - 0.1 * served[0]) <= largest + 1
        assert abs(served[2] - 0.05 * (served[0] + served[1])) <= largest + 1


def test_claims_of_keys_that_left_are_forgotten_in_the_end() -> None:
    line = FairLine()
    line.push(_waiter("stays", 1, 1, 0.01))
    line.push(_waiter("stays", 1, 1, 0.01))
    for number in range(5000):
        line.push(_waiter(f"k{number}", 1, 1, 1.0))
        assert len(line) <= 3
        line.pop_first()
    assert len(line._flows) <= 1100


def test_a_key_that_was_away_has_saved_up_nothing() -> None:
    line = FairLine()
    for _ in range(40):
        line.push(_waiter("stays", 1, 1, 1.0))
    for _ in range(20):
        line.pop_first()
    for _ in range(5):
        line.push(_waiter("returns", 1, 1, 1.0))
    served = [line.pop_first().key for _ in range(8)]
    assert served.count("returns") in (4, 5)
    assert "stays" in served[:3]


def test_a_key_with_one_request_at_a_time_takes_turns_too() -> None:
    line = FairLine()
    for _ in range(20):
        line.push(_waiter("many", 1, 1, 1.0))
    served = []
    for _ in range(10):
        line.push(_waiter("one", 1, 1, 1.0))
        served += [line.pop_first().key, line.pop_first().key]
    assert served.count("one") == 10
