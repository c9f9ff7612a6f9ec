"""Connections by origin: reused last in, first out, bounded, and waited for in order.

Every connection has a place from before it is opened until it is given up. Places are counted per origin and in all; a request
without one waits, and gets either a connection that became free or a place to open its own. An idle connection to another
origin gives its place up for a request that waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import httpx

from backends.remote.transport.connection import Connection, Origin
from backends.remote.transport.limits import ConnectionCounts, Limits

Timeouts = Mapping[str, float | None]
Waiter = asyncio.Future[Connection | None]


class Site:
    """What the pool has for one origin. It exists as long as there is anything of it."""

    __slots__ = ("idle", "num_open", "origin", "waiters")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.num_open = 0
        self.idle: dict[Connection, float] = {}  # since when, the oldest first
        self.waiters: dict[Waiter, int] = {}  # with a ticket, the oldest first


class Pool:
    """The connections of one transport, on one event loop.

    Args:
        limits: the bounds.
        keep_alive_s: how long an idle connection is kept.
        open_connection: connects; the second argument holds the timeouts.
    """

    def __init__(
        self, limits: Limits, keep_alive_s: float, open_connection: Callable[[Origin, Timeouts], Awaitable[Connection]]
    ) -> None:
        self._limits = limits
        self._keep_alive_s = keep_alive_s
        self._open_connection = open_connection
        self._sites: dict[Origin, Site] = {}
        self._alive: set[Connection] = set()  # their sockets are not closed yet
        self._num_open = self._num_idle = self._num_waiting = self._next_ticket = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._all_lost: asyncio.Event | None = None

    def counts(self) -> ConnectionCounts:
        """Say what it holds."""
        return ConnectionCounts(self._num_open, self._num_idle, self._num_waiting)

    def take(self, origin: Origin) -> Connection | None:
        """Take the idle connection that was used last, if there is one."""
        site = self._sites.get(origin)
        if site is None or not site.idle:
            return None
        connection, since = site.idle.popitem()
        self._num_idle -= 1
        if asyncio.get_running_loop().time() - since < self._keep_alive_s:
            return connection
        # The sweeper is late. All the others have been idle for longer still.
        connection.close()
        for expired in list(site.idle):
            expired.close()
        return None

    async def acquire(self, origin: Origin, timeouts: Timeouts) -> Connection:
        """Open a connection, or wait for one to become free when there is no place for another.

        Raises:
            httpx.PoolTimeout: none became free within the pool timeout, or too many requests wait already.
            httpx.ConnectTimeout, httpx.ConnectError: as `dial`; or the pool is closed.
        """
        while True:
            if self._is_closed:
                raise httpx.ConnectError("the transport is closed")
            site = self._site(origin)
            if self._reserve(site):
                return await self._open(site, timeouts)
            connection = await self._queue(site, timeouts.get("pool"))
            if connection is None:
                return await self._open(site, timeouts)
            if not connection.is_closed:
                return connection

    def release(self, connection: Connection) -> None:
        """Hand a free connection to whoever waits longest for one of its origin, or keep it."""
        if connection.is_closed:
            return
        site = self._sites[connection.origin]
        if self._wake_next(site, connection):
            return
        if self._is_closed or (self._num_waiting and self._num_open >= self._limits.max_connections):
            connection.close()
        else:
            loop = asyncio.get_running_loop()
            site.idle[connection] = loop.time()
            self._num_idle += 1
            if self._num_idle > self._limits.max_idle:
                self._close_oldest(self._sites.values())
            if self._sweeper is None and self._num_idle:
                self._sweeper = loop.call_later(self._keep_alive_s, self._sweep)

    def forget(self, connection: Connection) -> None:
        """Free the place of a connection that serves no more."""
        site = self._sites[connection.origin]
        if site.idle.pop(connection, None) is not None:
            self._num_idle -= 1
        self._free(site)

    def lost(self, connection: Connection) -> None:
        """Take note that a socket is closed."""
        self._alive.discard(connection)
        if self._all_lost is not None and not self._alive:
            self._all_lost.set()

    async def aclose(self) -> None:
        """Close everything, and wait until the sockets are. Whoever waits or reads gets an error. May be called twice."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for site in list(self._sites.values()):
            for waiter in site.waiters:
                if not waiter.done():
                    waiter.set_exception(httpx.ConnectError("the transport was closed"))
        for connection in list(self._alive):
            connection.fail(httpx.ReadError("the transport was closed"))
        if self._alive:
            self._all_lost = asyncio.Event()
            await self._all_lost.wait()

    def _site(self, origin: Origin) -> Site:
        site = self._sites.get(origin)
        if site is None:
            site = self._sites[origin] = Site(origin)
        return site

    def _reserve(self, site: Site) -> bool:
        """Take a place, if need be that of an idle connection."""
        limits = self._limits
        if site.num_open >= limits.max_connections_per_origin:
            self._close_oldest([site])
        elif self._num_open >= limits.max_connections:
            self._close_oldest(self._sites.values())
        if site.num_open >= limits.max_connections_per_origin or self._num_open >= limits.max_connections:
            return False
        # The last connection of an origin may have been closed for this, and its site with it.
        self._sites[site.origin] = site
        site.num_open += 1
        self._num_open += 1
        return True

    async def _open(self, site: Site, timeouts: Timeouts) -> Connection:
        """Connect, in a place that was taken already."""
        try:
            connection = await self._open_connection(site.origin, timeouts)
            connection.adopt(self)
        except BaseException:
            self._free(site)
            raise
        self._alive.add(connection)
        if self._is_closed:
            connection.close()
            raise httpx.ConnectError("the transport was closed")
        return connection

    async def _queue(self, site: Site, timeout_s: float | None) -> Connection | None:
        """Wait for a connection, or (None) for a place."""
        if self._num_waiting >= self._limits.max_waiting:
            raise httpx.PoolTimeout(f"{self._num_waiting} requests wait for a connection already")
        self._sites[site.origin] = site
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        site.waiters[waiter] = self._next_ticket
        self._next_ticket += 1
        self._num_waiting += 1
        timer = None if timeout_s is None else loop.call_later(timeout_s, _expire, waiter, timeout_s)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._give_back(site, waiter.result())
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if site.waiters.pop(waiter, None) is not None:
                self._num_waiting -= 1
                self._drop_if_unused(site)

    def _give_back(self, site: Site, connection: Connection | None) -> None:
        if connection is None:
            self._free(site)
        else:
            self.release(connection)

    def _wake_next(self, site: Site, connection: Connection | None) -> bool:
        """Give the first in the queue what it waits for; False when nobody waits any more."""
        while site.waiters:
            waiter = next(iter(site.waiters))
            del site.waiters[waiter]
            self._num_waiting -= 1
            # One that was cancelled, or whose time is over, leaves the queue only when its task runs.
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _free(self, site: Site) -> None:
        site.num_open -= 1
        self._num_open -= 1
        self._drop_if_unused(site)
        if self._num_waiting:
            self._grant()

    def _grant(self) -> None:
        """Give a place to the request that waits longest, among those whose origin has room."""
        limits = self._limits
        while self._num_open < limits.max_connections:
            sites = [s for s in self._sites.values() if s.waiters and s.num_open < limits.max_connections_per_origin]
            if not sites:
                return
            site = min(sites, key=lambda site: next(iter(site.waiters.values())))
            if self._wake_next(site, None):
                site.num_open += 1
                self._num_open += 1

    def _drop_if_unused(self, site: Site) -> None:
        if not site.num_open and not site.waiters:
            self._sites.pop(site.origin, None)

    def _close_oldest(self, sites: Iterable[Site]) -> None:
        """Close the connection that has been idle for longest, if any is."""
        idle = [site for site in sites if site.idle]
        if idle:
            site = min(idle, key=lambda site: next(iter(site.idle.values())))
            next(iter(site.idle)).close()

    def _sweep(self) -> None:
        """Close what has been idle for too long, and come back for the next."""
        self._sweeper = None
        loop = asyncio.get_running_loop()
        # What expires within a millisecond goes too, for the sake of clocks that are no finer than that.
        latest = loop.time() - self._keep_alive_s + 0.001
        for site in list(self._sites.values()):
            for connection in [connection for connection, since in site.idle.items() if since <= latest]:
                connection.close()
        since = min((next(iter(site.idle.values())) for site in self._sites.values() if site.idle), default=None)
        if since is not None:
            self._sweeper = loop.call_at(since + self._keep_alive_s, self._sweep)


def _expire(waiter: Waiter, timeout_s: float) -> None:
    if not waiter.done():
        waiter.set_exception(httpx.PoolTimeout(f"no connection became free within {timeout_s:g} s"))
