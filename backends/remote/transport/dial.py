"""Opening a connection: names, several addresses at once (RFC 8305), TLS.

uvloop has no happy eyeballs of its own, so addresses are raced here and the winner is handed to the event loop.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import chain, zip_longest
from typing import Any

import httpx

from backends.remote.transport.connection import Connection, Origin

_NEXT_ADDRESS_AFTER_S = 0.25
_MAX_ADDRESSES = 8

Address = tuple[socket.AddressFamily, Any]


async def dial(
    origin: Origin, make: Callable[[], Connection], ssl_context: ssl.SSLContext, timeout_s: float | None
) -> Connection:
    """Connect, with TLS when the scheme is https.

    Args:
        origin: where to; without a port, the scheme's own.
        make: builds the protocol object.
        ssl_context: used for https, with the host as server name.
        timeout_s: for names, TCP and TLS together; None waits as long as the system does.

    Raises:
        httpx.ConnectTimeout: it took longer than that.
        httpx.ConnectError: the name is unknown, nobody listens, or TLS failed.
    """
    scheme, raw_host, port = origin
    host = raw_host.decode("ascii")
    is_tls = scheme == "https"
    place = f"{host}:{port or (443 if is_tls else 80)}"
    try:
        async with asyncio.timeout(timeout_s):
            winner = await race(await _resolve(host, port or (443 if is_tls else 80)))
            _, connection = await asyncio.get_running_loop().create_connection(
                make, sock=winner, ssl=ssl_context if is_tls else None, server_hostname=host if is_tls else None
            )
            return connection
    except TimeoutError as error:
        raise httpx.ConnectTimeout(f"no connection to {place} within the connect timeout") from error
    except (OSError, UnicodeError) as error:
        raise httpx.ConnectError(f"no connection to {place}: {error}") from error


async def race(addresses: list[Address]) -> socket.socket:
    """Connect to whichever address answers first, giving each a head start of 250 ms over the next.

    Raises:
        OSError: none did; the reason is that of the first that failed.
    """
    waiting = deque(addresses)
    tasks: set[asyncio.Task[socket.socket]] = set()
    winner: socket.socket | None = None
    failure: BaseException = OSError("the name has no address")
    has_failed = False
    try:
        while winner is None and (waiting or tasks):
            if waiting:
                tasks.add(asyncio.create_task(_connect(*waiting.popleft())))
            delay_s = _NEXT_ADDRESS_AFTER_S if waiting else None
            done, _ = await asyncio.wait(tasks, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    winner = task.result()
                    break
                tasks.discard(task)
                if not has_failed:
                    failure, has_failed = error, True
    finally:
        await _end(tasks, winner)
    if winner is None:
        raise failure
    return winner


async def _end(tasks: "set[asyncio.Task[socket.socket]]", winner: socket.socket | None) -> None:
    for task in tasks:
        task.cancel()
        task.add_done_callback(partial(_close_loser, winner))
    try:
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError:
        # Nobody will ever be given it.
        if winner is not None:
            winner.close()
        raise


def _close_loser(winner: socket.socket | None, task: "asyncio.Task[socket.socket]") -> None:
    if not task.cancelled() and task.exception() is None and task.result() is not winner:
        task.result().close()


async def _resolve(host: str, port: int) -> list[Address]:
    """Look the name up, and take its address families in turn, beginning with the one that the system prefers."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [(family, address) for family, _, _, _, address in found]
    preferred = [item for item in addresses if item[0] == addresses[0][0]]
    others = [item for item in addresses if item[0] != addresses[0][0]]
    return [item for item in chain.from_iterable(zip_longest(preferred, others)) if item is not None][:_MAX_ADDRESSES]


async def _connect(family: socket.AddressFamily, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
