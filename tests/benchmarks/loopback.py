"""A server on a free port of the loopback address that ends only when every client has gone, so that nothing is left open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress


class Clients:
    """Counts the connections of a server, and those that still are."""

    def __init__(self) -> None:
        self.opened = 0
        self.alive = 0
        self._none = asyncio.Event()

    def one_more(self) -> None:
        self.opened += 1
        self.alive += 1
        self._none.clear()

    def one_less(self) -> None:
        self.alive -= 1
        if not self.alive:
            self._none.set()

    async def all_gone(self) -> None:
        if self.alive:
            await self._none.wait()


@asynccontextmanager
async def serving(protocol: Callable[[], asyncio.Protocol]) -> AsyncIterator[tuple[str, Clients]]:
    """Serve a protocol; gives the URL."""
    clients = Clients()

    def counted() -> asyncio.Protocol:
        one = protocol()
        made, lost = one.connection_made, one.connection_lost
        one.connection_made = lambda transport: (clients.one_more(), made(transport))  # type: ignore[method-assign]
        one.connection_lost = lambda exc: (lost(exc), clients.one_less())  # type: ignore[method-assign]
        return one

    async with await asyncio.get_running_loop().create_server(counted, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", clients
        async with asyncio.timeout(5):
            await clients.all_gone()


@asynccontextmanager
async def handling(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[tuple[str, Clients]]:
    """Serve connections with a function, after which each is closed; gives the URL."""
    clients = Clients()

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.one_more()
        with suppress(ConnectionError):
            await handler(reader, writer)
            writer.close()
            await writer.wait_closed()
        clients.one_less()

    async with await asyncio.start_server(counted, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", clients
        async with asyncio.timeout(5):
            await clients.all_gone()
