"""Server-sent events: the deltas of a backend as one HTTP response.

The status is held back until the first delta is there, so that a refusal is a real status and not an event inside a 200; but
never longer than the ping interval, after which the stream begins with comments and later errors become error events. A stream
that began always ends with `data: [DONE]`. Written against ASGI itself: one `send` per delta, one task that lives as
long as the backend's iterator, and a watcher for the client.

Source: WHATWG HTML, "Server-sent events"; OpenAI API reference, "Streaming". Never `id:`, `retry:` or empty data: both
break openai-python.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import monotonic
from typing import Protocol

from litestar.types import Receive, Scope, Send

from backends.errors import Failed
from backends.types import Delta, FinishReason
from gateway.disconnect import run_until_disconnect
from gateway.errors import ClientGone, classify, error_body
from gateway.telemetry.observation import Observation

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"openai-version", b"2020-10-01"),
]


class Encoder(Protocol):
    """Turns deltas into the events of one API."""

    def opening(self) -> bytes:
        """What must come before anything else, for a stream that begins before its first delta."""
        ...

    def encode(self, delta: Delta) -> bytes:
        """The events of a delta; empty when it shows nothing."""
        ...


class EventStream:
    """An ASGI response that plays one backend iterator, and closes it however the response ends.

    Args:
        source: not started yet; owned by this response.
        begin: starts the observation of the request.
        ping_interval_s: silence after which a comment is sent; 0 sends none and waits for the first delta as long as it takes.
        prompt_param: the field to blame for an overflowing context.
    """

    def __init__(
        self,
        source: AsyncGenerator[Delta],
        encoder: Encoder,
        begin: Callable[[], Observation],
        *,
        ping_interval_s: float,
        prompt_param: str,
    ) -> None:
        self._source = source
        self._encoder = encoder
        self._begin = begin
        self._ping_interval_s = ping_interval_s
        self._prompt_param = prompt_param

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Raises what the backend raised before the first delta; afterwards nothing."""
        writer = _Writer(send)
        request_id = scope.get("state", {}).get("request_id", "")

        async def keep_alive() -> float:
            return await writer.ping(self._encoder, self._ping_interval_s)

        idle = keep_alive if self._ping_interval_s else None
        try:
            await run_until_disconnect(receive, self._play(writer, request_id), idle)
        except ClientGone:
            if not writer.started:
                raise

    async def _play(self, writer: "_Writer", request_id: str) -> None:
        observation = self._begin()
        try:
            await self._forward(writer, observation)
        except asyncio.CancelledError:
            observation.cancelled()
            raise
        except Exception as error:
            api_error = classify(error, request_id=request_id, prompt_param=self._prompt_param)
            observation.fail(api_error.code, api_error.status)
            if not writer.started:
                raise api_error from error
            await writer.write(b"data: " + error_body(api_error) + b"\n\n" + DONE, last=True)

    async def _forward(self, writer: "_Writer", observation: Observation) -> None:
        reason: FinishReason | None = None
        async with aclosing(self._source) as deltas:
            async for delta in deltas:
                observation.tokens(delta.tokens)
                events = self._encoder.encode(delta)
                reason = reason or delta.finish
                if delta.usage is not None:
                    await writer.write(events + DONE, last=True)
                    observation.finish(delta.usage, reason)
                    return
                if events:
                    await writer.write(events)
        raise Failed("The backend ended its answer without saying so.")


class _Writer:
    """Sends the head once and bodies in order, from the task that plays and from the one that pings."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._turn = asyncio.Lock()
        self._last_write = monotonic()
        self.started = False

    async def write(self, data: bytes, *, last: bool = False) -> None:
        async with self._turn:
            if not self.started:
                self.started = True
                await self._send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            self._last_write = monotonic()

    async def ping(self, encoder: Encoder, interval_s: float) -> float:
        """Break a silence of `interval_s`; returns the seconds after which to look again."""
        left_s = self._last_write + interval_s - monotonic()
        if left_s > 0:
            return left_s
        # A writer that waits for a slow client is no silence.
        if not self._turn.locked():
            await self.write(PING if self.started else encoder.opening() + PING)
        return interval_s
