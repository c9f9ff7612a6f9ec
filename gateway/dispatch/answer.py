"""An answer that has begun, as bytes for a client: what a deployment gave first, and how to get the rest.

The bytes come from a remote upstream as they are, or from the deltas of any other backend, encoded here. It knows which headers
a body needs, but nothing of connections.
"""

from collections.abc import AsyncGenerator
from typing import Protocol, Self

from backends.errors import BackendError, Failed
from backends.forwarding import Forwarded
from backends.types import Delta, FinishReason, Usage
from gateway.errors import ApiError

Headers = list[tuple[bytes, bytes]]

JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"openai-version", b"2020-10-01")]
EVENT_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"openai-version", b"2020-10-01"),
]


class Answer(Protocol):
    """What the first output of a deployment becomes. Closing it in any state cancels the request.

    Attributes:
        headers: of the response, content type included, without the body's length.
        is_stream: events, and not a whole JSON body.
        first: the whole body, or the events up to the first that shows something.
        ended: nothing comes after what was returned last.
    """

    headers: Headers
    is_stream: bool
    first: bytes
    ended: bool

    @property
    def usage(self) -> Usage | None:
        """Known once the answer has ended."""
        ...

    @property
    def finish(self) -> FinishReason | None:
        """Why the first choice ended, once it has."""
        ...

    @property
    def outputs(self) -> int:
        """How many tokens (or events with output) have passed so far."""
        ...

    @property
    def error(self) -> BackendError | None:
        """What broke a stream whose last events say so already; other breaks are raised."""
        ...

    async def next(self) -> bytes:
        """The next bytes; only to be called while `ended` is false. Raises BackendError when the backend breaks."""
        ...

    async def aclose(self) -> None:
        """Let go of the backend. May be called twice."""
        ...


class Ending(Protocol):
    """How the streams of one API end."""

    done: bytes
    """What comes last, after an error too."""

    def error(self, error: ApiError) -> bytes:
        """The event for what broke after the stream had begun."""
        ...


class Encoder(Ending, Protocol):
    """Turns deltas into the events of one API."""

    def encode(self, delta: Delta) -> bytes:
        """The events of a delta; empty when it shows nothing."""
        ...


class WholeAnswer:
    """A complete JSON body."""

    is_stream = False
    ended = True
    error: BackendError | None = None

    def __init__(self, body: bytes, usage: Usage | None, finish: FinishReason | None = None) -> None:
        self.headers = JSON_HEADERS
        self.first = body
        self.usage = usage
        self.finish = finish
        self.outputs = usage.completion_tokens if usage is not None else 0

    async def next(self) -> bytes:
        """Nothing comes after a whole body."""
        return b""

    async def aclose(self) -> None:
        """Nothing is held."""


class StreamedAnswer:
    """A backend's deltas as events for a client. Owns the iterator. The last events come with what ends the stream."""

    is_stream = True
    error: BackendError | None = None

    def __init__(self, deltas: AsyncGenerator[Delta], encoder: Encoder) -> None:
        self.headers = EVENT_HEADERS
        self.first = b""
        self.ended = False
        self.usage: Usage | None = None
        self.finish: FinishReason | None = None
        self.outputs = 0
        self._deltas = deltas
        self._encoder = encoder

    async def begin(self) -> Self:
        """Wait for the first delta that shows something. Raises what the backend raises, and is closed then."""
        try:
            self.first = await self.next()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def next(self) -> bytes:
        """The events of the next delta that shows something."""
        async for delta in self._deltas:
            self.outputs += delta.tokens
            self.finish = self.finish or delta.finish
            events = self._encoder.encode(delta)
            if delta.usage is not None:
                self.usage = delta.usage
                self.ended = True
                return events + self._encoder.done
            if events:
                return events
        raise Failed("The backend ended its answer without saying so.")

    async def aclose(self) -> None:
        """Close the iterator, which cancels the request."""
        await self._deltas.aclose()


class ForwardedAnswer:
    """The bytes of an upstream."""

    def __init__(self, forwarded: Forwarded) -> None:
        kept = [header for header in forwarded.headers if header[0] != b"content-type"]
        self.headers = [*(EVENT_HEADERS if forwarded.stream else JSON_HEADERS), *kept]
        self.is_stream = forwarded.stream
        self.first = forwarded.first
        self.ended = not forwarded.stream
        self._forwarded = forwarded

    @property
    def usage(self) -> Usage | None:
        """As the upstream counts."""
        return self._forwarded.usage

    @property
    def finish(self) -> FinishReason | None:
        """The last one that was seen."""
        return self._forwarded.finish

    @property
    def outputs(self) -> int:
        """Events with output."""
        return self._forwarded.output_events

    @property
    def error(self) -> BackendError | None:
        """What broke the stream."""
        return self._forwarded.error

    async def next(self) -> bytes:
        """The next bytes; empty at the end."""
        data = await self._forwarded.next()
        self.ended = not data
        return data

    async def aclose(self) -> None:
        """Release the connection."""
        await self._forwarded.aclose()
