"""One kept-alive HTTP/1.1 connection that notes when content arrives.

Raw asyncio streams, so that no client library stands in the measured path. Understands what OpenAI-compatible servers send:
bodies with a length, chunked or ended by close, and server-sent events. Knows nothing about load or statistics.
Source: RFC 9112 (message framing); WHATWG HTML, section 9.2 (event streams).
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

_HEAD = (
    "POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
    "authorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
)
_READ_BYTES = 65536


class Answer(msgspec.Struct):
    """What came back for one request. `arrivals` are the seconds since sending at which pieces of content arrived."""

    status: int = 0
    arrivals: list[float] = []
    e2e_s: float = 0.0
    tokens: int = 0
    cached_tokens: int = 0
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the request was answered as it should be."""
        return self.status == 200 and not self.error


class Connection:
    """A connection to one server; opened when it is first needed, and again after the server closed it."""

    def __init__(self, host: str, port: int, path: str, key: str) -> None:
        self._host, self._port, self._path, self._key = host, port, path, key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        """Close it, in whatever state it is."""
        if self._streams:
            self._streams[1].close()
        self._streams = None

    async def ask(self, body: dict[str, Any], timeout_s: float) -> Answer:
        """Send one request and read its whole answer. Never raises for what the server does: that is in `Answer.error`."""
        answer = Answer()
        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                await self._exchange(msgspec.json.encode(body), bool(body.get("stream")), answer, began)
        except (OSError, EOFError, ValueError, TimeoutError, msgspec.MsgspecError) as error:
            answer.error = repr(error)[:200]
            self.close()
        answer.e2e_s = time.perf_counter() - began
        return answer

    async def _exchange(self, data: bytes, stream: bool, answer: Answer, began: float) -> None:
        fields = {"path": self._path, "host": self._host, "port": self._port, "key": self._key, "length": len(data)}
        reader, first = await self._send(_HEAD.format(**fields).encode() + data)
        answer.status = int(first.split()[1])
        length, chunked, close = await _framing(reader)
        async with aclosing(_pieces(reader, length, chunked)) as pieces:
            if stream and answer.status == 200:
                await _read_events(pieces, answer, began)
            else:
                whole = b"".join([piece async for piece in pieces])
                _read_body(whole, answer, time.perf_counter() - began)
        if close or (length is None and not chunked):
            self.close()

    async def _send(self, request: bytes) -> tuple[asyncio.StreamReader, bytes]:
        kept = self._streams is not None
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(request)
        if first := await reader.readline():
            return reader, first
        self.close()
        if kept:  # the server may close an idle connection whenever it likes
            return await self._send(request)
        raise EOFError("the server closed the connection without an answer")


async def _framing(reader: asyncio.StreamReader) -> tuple[int | None, bool, bool]:
    length, chunked, close = None, False, False
    while (line := (await reader.readline()).lower().strip()) != b"":
        name, _, value = line.partition(b":")
        if name == b"content-length":
            length = int(value)
        chunked |= name == b"transfer-encoding" and b"chunked" in value
        close |= name == b"connection" and b"close" in value
    return length, chunked, close


async def _pieces(reader: asyncio.StreamReader, length: int | None, chunked: bool) -> AsyncGenerator[bytes]:
    if chunked:
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return
    left = length
    while left is None or left > 0:
        piece = await reader.read(_READ_BYTES if left is None else min(_READ_BYTES, left))
        if not piece:
            if left:
                raise EOFError(f"the answer ended {left} bytes early")
            return
        left = None if left is None else left - len(piece)
        yield piece


async def _read_events(pieces: AsyncGenerator[bytes], answer: Answer, began: float) -> None:
    rest, done = b"", False
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            payload = line[5:].strip()
            done |= payload == b"[DONE]"
            if payload != b"[DONE]":
                _read_chunk(msgspec.json.decode(payload), answer, began)
    if not done and not answer.error:
        answer.error = "the stream ended without [DONE]"


def _read_chunk(chunk: dict[str, Any], answer: Answer, began: float) -> None:
    if "error" in chunk:
        answer.error = str(chunk["error"])[:200]
    for choice in chunk.get("choices") or ():
        if (choice.get("delta") or {}).get("content") or choice.get("text"):
            answer.arrivals.append(time.perf_counter() - began)
    answer.tokens = max(answer.tokens, len(answer.arrivals))
    _read_usage(chunk, answer)


def _read_body(whole: bytes, answer: Answer, now: float) -> None:
    if answer.status != 200:
        answer.error = whole[:200].decode(errors="replace")
        return
    answer.arrivals.append(now)
    _read_usage(msgspec.json.decode(whole), answer)


def _read_usage(message: dict[str, Any], answer: Answer) -> None:
    if usage := message.get("usage"):
        answer.tokens = usage.get("completion_tokens", answer.tokens)
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
