"""Server-sent events: an answer as one HTTP response.

The status is held back until the first output is there, so that a refusal is a real status and not an event inside a 200; but
never longer than the ping interval, after which the stream begins with comments and later errors become error events. Written
against ASGI itself: one `send` per item, and no task but the request's own.

Source: WHATWG HTML, "Server-sent events"; OpenAI API reference, "Streaming". Never `id:`, `retry:` or empty data: both
break openai-python.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from litestar.types import Receive, Scope, Send

from gateway.call import Call
from gateway.disconnect import until_gone
from gateway.dispatch.answer import EVENT_HEADERS, Ending
from gateway.dispatch.opened import Opened
from gateway.errors import ClientGone, classify
from gateway.response import trail_headers

PING = b": ping\n\n"


class EventStream:
    """An ASGI response that plays one answer, and closes it however the response ends.

    Args:
        open: waits for the first output.
        ping_interval_s: silence after which a comment is sent; 0 sends none and waits for the first output as long as it takes.
        prompt_param: the field to blame for an overflowing context.
    """

    def __init__(
        self,
        open: Callable[[], Awaitable[Opened]],
        call: Call,
        ending: Ending,
        *,
        ping_interval_s: float,
        prompt_param: str,
    ) -> None:
        self._open = open
        self._call = call
        self._ending = ending
        self._ping_interval_s = ping_interval_s
        self._prompt_param = prompt_param

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Raises what was raised before the first output; afterwards nothing."""
        writer = _Writer(send, self._call, self._ping_interval_s)
        try:
            await until_gone(scope, receive, self._play(writer))
        except ClientGone:
            if not writer.started:
                raise
        finally:
            writer.close()

    async def _play(self, writer: "_Writer") -> None:
        try:
            opened = await self._open()
            try:
                source = opened.source
                await writer.write(source.first, source.headers, last=source.ended)
                while not source.ended:
                    data = await opened.next()
                    await writer.write(data, last=source.ended)
            finally:
                await opened.aclose()
        except Exception as error:
            if not writer.started:
                raise
            api_error = classify(error, request_id=self._call.id, prompt_param=self._prompt_param)
            await writer.write(self._ending.error(api_error) + self._ending.done, last=True)


class _Writer:
    """Sends the head once and bodies in order; breaks silences with comments."""

    def __init__(self, send: Send, call: Call, ping_interval_s: float) -> None:
        self.started = False
        self._send = send
        self._call = call
        self._interval_s = ping_interval_s
        self._turn = asyncio.Lock()
        self._last_write = monotonic()
        self._pinging: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(ping_interval_s, self._look) if ping_interval_s else None

    async def write(self, data: bytes, headers: list[tuple[bytes, bytes]] = EVENT_HEADERS, *, last: bool = False) -> None:
        async with self._turn:
            if not self.started:
                self.started = True
                head = [*headers, *self._call.headers, *trail_headers(self._call)]
                await self._send({"type": "http.response.start", "status": 200, "headers": head})
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            self._last_write = monotonic()

    def close(self) -> None:
        """Stop pinging."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()

    def _look(self) -> None:
        left_s = self._last_write + self._interval_s - monotonic()
        # A writer that waits for a slow client is no silence.
        if left_s <= 0 and not self._turn.locked():
            self._pinging = asyncio.create_task(self.write(PING))
            left_s = self._interval_s
        self._timer = asyncio.get_running_loop().call_later(max(left_s, 0.01), self._look)
