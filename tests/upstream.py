"""An HTTP server that answers with exactly the bytes of a script, for what no real server does on purpose.

    async with scripted(json_answer({"ok": True}), [HEAD, b"data: ", Pause(0.1), Reset()]) as upstream:
        ...  # ask upstream.url
        upstream.requests[0].json()

One script answers one request, in order; the last one answers all that follow. A script is a list of steps: bytes are written
at once, `Bytewise` one by one, `Pause` waits, `Until` waits for an event, `Reset` aborts the connection, `Close` ends it.
Without either, the connection stays open for the next request. With `checks` every GET is answered by that, and neither plays a
script nor counts as a request: a gateway asks for the list of models from time to time.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Bytewise:
    """Written one byte per write, so that every character is cut."""

    data: bytes


@dataclass
class Pause:
    seconds: float


@dataclass
class Until:
    event: asyncio.Event


class Reset:
    """The connection is aborted, and the client's side told so."""


class Close:
    """The connection is ended properly."""


Step = bytes | Bytewise | Pause | Until | Reset | Close
Script = Sequence[Step]

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def answer(status: int, body: bytes, *headers: tuple[str, str], kind: str = "application/json") -> Script:
    """A whole answer with its length."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
    return [head.encode() + body]


def json_answer(value: Any, status: int = 200, *headers: tuple[str, str]) -> Script:
    return answer(status, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), *headers)


def stream(*steps: Step) -> Script:
    """A stream of events that ends with the connection."""
    return [STREAM_HEAD, *steps, Close()]


def chunked_stream(*pieces: bytes) -> Script:
    """A stream whose end is marked, so that the connection may serve again."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


@dataclass
class Received:
    """A request as it came; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ScriptedUpstream:
    """A running server: `requests` it has received, connections `opened` so far, `gone` when a client left in a script."""

    scripts: list[Script]
    checks: Script | None = None
    requests: list[Received] = field(default_factory=list)
    opened: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        try:
            while received := await _read_request(reader):
                if not await self._play(self._script_for(received), reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()

    def _script_for(self, received: Received) -> Script:
        if received.method == "GET" and self.checks is not None:
            return self.checks
        self.requests.append(received)
        return self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]

    async def _play(self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for step in script:
            match step:
                case bytes():
                    writer.write(step)
                case Bytewise():
                    for byte in step.data:
                        writer.write(bytes((byte,)))
                        await asyncio.sleep(0)
                case Pause():
                    await self._wait(asyncio.sleep(step.seconds), reader)
                case Until():
                    await self._wait(step.event.wait(), reader)
                case Reset():
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
                    return False
                case Close():
                    return False
            await writer.drain()
        return True

    async def _wait(self, coroutine: Any, reader: asyncio.StreamReader) -> None:
        """Wait, but notice at once when the client leaves."""
        work, left = asyncio.ensure_future(coroutine), asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ConnectionResetError
        finally:
            work.cancel()
            left.cancel()
            await asyncio.wait((work, left))


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Received(method, path, headers, body)


@asynccontextmanager
async def scripted(*scripts: Script, checks: Script | None = None) -> AsyncIterator[ScriptedUpstream]:
    """Run a server that plays these scripts, on a free port of the loopback interface."""
    upstream = ScriptedUpstream(list(scripts), checks)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(upstream.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
