"""A fake OpenAI-compatible upstream, fast enough that whatever stands in front of it is what gets measured.

    python -m benchmarks.upstream PORT [--chunks 100] [--interval-ms 0] [--first-ms 0]

Any POST gets one fixed chat completion, or a stream of `--chunks` pieces when its body asks for one; `GET /v1/models` names the
model `m`; any other GET says ok. Every byte it sends is made once. Loopback only.
"""

import argparse
import asyncio
from typing import Any, cast

import msgspec
import uvloop

MODEL = "m"
_CREATED = 1


def _json(head: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(head)
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _event(data: bytes) -> bytes:
    event = b"data: %b\n\n" % data
    return b"%x\r\n%b\r\n" % (len(event), event)


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": _CREATED, "model": MODEL}
    return _event(msgspec.json.encode({**head, "choices": [choice]}))


_COMPLETION = _json(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": _CREATED,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    }
)
_MODELS = _json({"object": "list", "data": [{"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "benchmark"}]})
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_OPENING = _STREAM + _chunk({"role": "assistant", "content": ""})
_PIECE = _chunk({"content": "tok "})
_CLOSING = _chunk({}, "stop") + _event(b"[DONE]") + b"0\r\n\r\n"


class Upstream(asyncio.Protocol):
    """One connection: cuts requests out of the bytes that arrive and answers each."""

    def __init__(self, chunks: int, first_s: float, interval_s: float) -> None:
        self._chunks, self._first_s, self._interval_s = chunks, first_s, interval_s
        self._received = b""
        self._answer: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where answers go."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class

    def connection_lost(self, exc: Exception | None) -> None:
        """End the stream that nobody reads any more."""
        if self._answer:
            self._answer.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._received += data
        while request := self._next_request():
            self._reply(*request)

    def _next_request(self) -> tuple[bytes, bytes] | None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head, body_at = self._received[:end].lower(), end + 4
        if b"transfer-encoding: chunked" in head:
            stop = self._received.find(b"0\r\n\r\n", body_at)
            if stop < 0:
                return None
            after = stop + 5
        else:
            _, _, length = head.partition(b"content-length:")
            stop = after = body_at + (int(length.split(b"\r\n", 1)[0]) if length else 0)
            if len(self._received) < stop:
                return None
        body, self._received = self._received[body_at:stop], self._received[after:]
        return head, body

    def _reply(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get "):
            self._transport.write(_MODELS if head.startswith(b"get /v1/models") else _OK)
        elif b'"stream":true' in body or b'"stream": true' in body:
            self._answer = asyncio.get_running_loop().create_task(self._stream())
        else:
            self._transport.write(_COMPLETION)

    async def _stream(self) -> None:
        self._transport.write(_OPENING)
        await asyncio.sleep(self._first_s)
        for _ in range(self._chunks):
            self._transport.write(_PIECE)
            await asyncio.sleep(self._interval_s)
        self._transport.write(_CLOSING)


async def serve(port: int, chunks: int, first_s: float = 0.0, interval_s: float = 0.0) -> None:
    """Listen on the loopback address until cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(chunks, first_s, interval_s), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--chunks", type=int, default=100, help="pieces of content in a stream")
    parser.add_argument("--first-ms", type=float, default=0.0, help="wait before the first piece")
    parser.add_argument("--interval-ms", type=float, default=0.0, help="wait after each piece")
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.chunks, options.first_ms / 1e3, options.interval_ms / 1e3))


if __name__ == "__main__":
    main()
