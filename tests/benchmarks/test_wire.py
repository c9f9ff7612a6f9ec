"""A connection is kept while the server keeps it, opened again when it does not, and pieces carry the time they came."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.load import target_of
from benchmarks.wire import Connection
from tests.benchmarks.loopback import Clients, handling

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers request after request with these pieces; after `serves` of them it closes the connection."""

    def __init__(self, *pieces: bytes, serves: int = 1000) -> None:
        self.pieces = pieces
        self.serves = serves
        self.clients = Clients()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(self.serves):
            if not await reader.read(4096):
                break
            for piece in self.pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[Connection, bytes]]:
        async with handling(self.serve) as (url, self.clients):
            target = target_of(url, "k")
            connection = Connection(target)
            yield connection, target.post(b"{}")
            await connection.close()


async def test_one_connection_serves_many_requests() -> None:
    server = Server(OK)
    async with server.connection() as (connection, request):
        replies = [await connection.ask(request, 5.0) for _ in range(3)]
    assert [(reply.status, reply.pieces[0][1]) for reply in replies] == [(200, b"ok")] * 3
    assert server.clients.opened == 1


async def test_a_connection_that_the_server_closed_while_idle_is_opened_again() -> None:
    server = Server(OK, serves=1)
    async with server.connection() as (connection, request):
        assert (await connection.ask(request, 5.0)).status == 200
        await server.clients.all_gone()
        assert (await connection.ask(request, 5.0)).status == 200
    assert server.clients.opened == 2


async def test_a_server_that_says_close_is_taken_at_its_word() -> None:
    server = Server(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    async with server.connection() as (connection, request):
        assert [(await connection.ask(request, 5.0)).status for _ in range(2)] == [200, 200]
    assert server.clients.opened == 2


async def test_pieces_carry_the_time_at_which_they_came() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with Server(head, b"1\r\na\r\n", b"1\r\nb\r\n1\r\nc\r\n", b"0\r\n\r\n").connection() as (connection, request):
        reply = await connection.ask(request, 5.0)
    (first, a), (second, b), (third, c) = reply.pieces
    assert (a, b, c) == (b"a", b"b", b"c")
    assert 0 < first < second == third < reply.e2e_s
    assert second - first > 0.01


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async with Server(b"HTTP/1.1 200 OK\r\n\r\nab", serves=1).connection() as (connection, request):
        reply = await connection.ask(request, 5.0)
    assert (reply.status, reply.error, b"".join(data for _, data in reply.pieces)) == (200, "", b"ab")


async def test_what_is_no_http_is_an_error() -> None:
    async with Server(b"SSH-2.0-OpenSSH\r\n\r\n").connection() as (connection, request):
        assert "no HTTP" in (await connection.ask(request, 5.0)).error
