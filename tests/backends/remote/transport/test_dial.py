"""Several addresses behind one name: the first that answers is taken."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from backends.remote.transport.dial import Address, race


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(sockets: ExitStack, backlog: int = 10) -> Address:
    server = sockets.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    server.listen(backlog)
    return socket.AF_INET, server.getsockname()


def refusing(sockets: ExitStack) -> Address:
    server = sockets.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    return socket.AF_INET, server.getsockname()


def hanging(sockets: ExitStack) -> Address:
    """A server whose queue is full: the system answers no more."""
    address = listening(sockets, backlog=0)
    for _ in range(4):
        client = sockets.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(address[1])
    return address


async def test_address_that_refuses_is_passed_over_at_once(sockets: ExitStack) -> None:
    good = listening(sockets)
    started = asyncio.get_running_loop().time()
    with await race([refusing(sockets), refusing(sockets), good]) as winner:
        assert winner.getpeername() == good[1]
        assert winner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert asyncio.get_running_loop().time() - started < 0.45


async def test_address_that_hangs_gets_company_after_a_while(sockets: ExitStack) -> None:
    good = listening(sockets)
    async with asyncio.timeout(5):
        with await race([hanging(sockets), good]) as winner:
            assert winner.getpeername() == good[1]
    assert len(asyncio.all_tasks()) == 1


async def test_when_all_fail_the_first_reason_is_told(sockets: ExitStack) -> None:
    with pytest.raises(ConnectionRefusedError):
        await race([refusing(sockets), refusing(sockets)])
    with pytest.raises(OSError, match="no address"):
        await race([])


async def test_cancelling_leaves_no_attempt_behind(sockets: ExitStack) -> None:
    task = asyncio.create_task(race([hanging(sockets), hanging(sockets)]))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) == 1
