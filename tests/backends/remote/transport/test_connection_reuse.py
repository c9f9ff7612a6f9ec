"""When a connection is free again, seen from the event loop's side."""

import asyncio
from typing import cast

import httpx
import pytest

from backends.remote.transport.connection import Connection
from backends.remote.transport.parser import ResponseParser
from backends.remote.transport.request import Message
from tests.backends.remote.transport.raw_upstream import answer


class Wire:
    """A transport that sends nothing; `unsent` bytes stay in its buffer."""

    def __init__(self, unsent: int, is_closing: bool) -> None:
        self.unsent = unsent
        self.closing = is_closing

    def write(self, data: bytes) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


class Owner:
    """Takes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def release(self, connection: Connection) -> None:
        self.told.append("free")

    def forget(self, connection: Connection) -> None:
        self.told.append("gone")

    def lost(self, connection: Connection) -> None:
        self.told.append("lost")


@pytest.mark.parametrize(("unsent", "is_closing", "told"), [(0, False, ["free"]), (1, False, ["gone"]), (0, True, ["gone"])])
async def test_connection_is_free_only_when_all_was_sent(unsent: int, is_closing: bool, told: list[str]) -> None:
    owner = Owner()
    connection = Connection(("http", b"a", None), ResponseParser(max_head_bytes=1000, max_headers=10))
    connection.connection_made(cast(asyncio.BaseTransport, Wire(unsent, is_closing)))
    connection.adopt(owner)
    exchange = asyncio.create_task(connection.exchange(Message(b"whatever"), {}))
    await asyncio.sleep(0)
    connection.data_received(answer())
    assert owner.told == told
    assert await (await exchange).aread() == b"ok"


async def test_connection_that_is_lost_before_it_has_an_owner_gets_none() -> None:
    connection = Connection(("http", b"a", None), ResponseParser(max_head_bytes=1000, max_headers=10))
    connection.connection_made(cast(asyncio.BaseTransport, Wire(0, False)))
    connection.connection_lost(None)
    with pytest.raises(httpx.ConnectError):
        connection.adopt(Owner())
