"""Whatever happens in whatever order, places are neither lost nor given twice, and nobody waits beside a free one."""

import asyncio
from collections.abc import Mapping
from typing import cast

import httpx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backends.remote.transport.connection import Connection, Origin, Owner
from backends.remote.transport.limits import ConnectionCounts, Limits
from backends.remote.transport.pool import Pool

LIMITS = [
    Limits(max_connections=3, max_connections_per_origin=2, max_idle=2, max_waiting=4),
    Limits(max_connections=2, max_connections_per_origin=1, max_idle=2, max_waiting=4),
    Limits(max_connections=1, max_connections_per_origin=1, max_idle=0, max_waiting=4),
]
ORIGINS: list[Origin] = [("http", name, None) for name in (b"a", b"b", b"c")]


class StandIn:
    """As much of a connection as a pool sees."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.is_closed = False
        self._owner: Owner | None = None

    def adopt(self, owner: Owner) -> None:
        self._owner = owner

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            assert self._owner is not None
            self._owner.forget(cast(Connection, self))
            self._owner.lost(cast(Connection, self))

    def fail(self, error: Exception) -> None:
        self.close()


class World:
    """A pool, those who hold a connection and those who wait for one."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = Pool(limits, 1000.0, self.open)
        self.fails = False
        self.made: list[StandIn] = []
        self.held: list[StandIn] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def open(self, origin: Origin, timeouts: Mapping[str, float | None]) -> Connection:
        fails = self.fails
        await asyncio.sleep(0)
        if fails:
            raise httpx.ConnectError("as the test wants it")
        connection = StandIn(origin)
        self.made.append(connection)
        return cast(Connection, connection)

    async def work(self, origin: Origin, *, is_repeated: bool) -> None:
        try:
            connection = None if is_repeated else self.pool.take(origin)
            connection = connection or await self.pool.acquire(origin, {})
        except (httpx.PoolTimeout, httpx.ConnectError):
            return
        assert connection.origin == origin
        stand_in = cast(StandIn, connection)
        assert stand_in not in self.held
        assert not stand_in.is_closed
        self.held.append(stand_in)

    async def act(self, action: str, number: int) -> None:
        self.forget_finished()
        if action.startswith("ask"):
            self.fails = action == "ask in vain"
            work = self.work(ORIGINS[number % 3], is_repeated=action == "ask again")
            self.tasks.append(asyncio.create_task(work))
        elif action == "cancel" and self.tasks:
            self.tasks[number % len(self.tasks)].cancel()
        elif action == "release" and self.held:
            self.pool.release(cast(Connection, self.held.pop(number % len(self.held))))
        elif action == "break" and self.held:
            self.held.pop(number % len(self.held)).close()
        elif action == "server closes" and (idle := [c for c in self.made if c not in self.held and not c.is_closed]):
            idle[number % len(idle)].close()
        elif action == "settle":
            await self.settle()

    def forget_finished(self) -> None:
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.result()
        self.tasks = [task for task in self.tasks if not task.done()]

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    def check(self) -> None:
        counts, limits = self.pool.counts(), self.limits
        alive = [connection for connection in self.made if not connection.is_closed]
        assert counts.open == len(alive) <= limits.max_connections
        assert counts.idle == len([c for c in alive if c not in self.held]) <= limits.max_idle
        assert counts.waiting == len([task for task in self.tasks if not task.done()]) <= limits.max_waiting
        for origin in ORIGINS:
            assert len([c for c in alive if c.origin == origin]) <= limits.max_connections_per_origin
        if counts.waiting:
            # Everybody's origin is full, or everything is.
            full = [o for o in ORIGINS if len([c for c in self.held if c.origin == o]) == limits.max_connections_per_origin]
            assert len(self.held) == limits.max_connections or full


ACTIONS = ["ask", "ask", "ask", "ask in vain", "ask again", "cancel", "release", "release", "break", "server closes", "settle"]


@given(st.sampled_from(LIMITS), st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), max_size=50))
@example(LIMITS[1], [("ask", 0), ("settle", 0), ("release", 0), ("ask again", 0), ("settle", 0), ("release", 0)])
@example(LIMITS[1], [("ask", 0), ("settle", 0), ("ask", 0), ("settle", 0), ("release", 0), ("server closes", 0), ("settle", 0)])
@settings(max_examples=300, deadline=None)
def test_places_are_neither_lost_nor_given_twice(limits: Limits, actions: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        world = World(limits)
        for action, number in actions:
            await world.act(action, number)
            if action == "settle":
                world.check()
        await world.settle()
        world.check()
        await finish(world)

    asyncio.run(scenario())


async def finish(world: World) -> None:
    """Let everybody have a turn, then close: nothing may be left."""
    async with asyncio.timeout(5):
        while any(not task.done() for task in world.tasks):
            while world.held:
                world.pool.release(cast(Connection, world.held.pop()))
            await world.settle()
    world.forget_finished()
    await world.pool.aclose()
    assert world.pool.counts() == ConnectionCounts(0, 0, 0)
    assert all(connection.is_closed for connection in world.made)
