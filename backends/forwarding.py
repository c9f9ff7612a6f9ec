"""What goes in and out where a request is passed on as bytes instead of being translated.

Plain shapes without HTTP, so that whoever routes, limits and meters need not know what forwards.
"""

from typing import Protocol

from msgspec import Struct

from backends.errors import BackendError
from backends.types import FinishReason, Usage

Headers = list[tuple[bytes, bytes]]


class ForwardRequest(Struct, kw_only=True):
    """A checked request of a client.

    Attributes:
        path: below the API's base, such as `/chat/completions`.
        body: the client's JSON object, unchanged.
        model_span: where the JSON string of the top-level `model` lies in `body`, quotes included; None when it is absent.
        stream: whether the body asks for a stream.
        wants_usage: whether it asks for a usage chunk at the end of the stream.
        headers: the client's headers with lower-case names; only those that the configuration names are passed on.
        request_id: sent as `x-request-id`.
        public_model: what the client calls the model; the answer's `model` is set to it.
    """

    path: str
    body: bytes
    model_span: tuple[int, int] | None
    stream: bool
    wants_usage: bool
    headers: Headers
    request_id: str
    public_model: str


class Forwarded(Protocol):
    """An answer on its way. It is complete when `next` has returned `b""`; closing it earlier cancels the request upstream.

    Attributes:
        status: of the answer; always a success, because errors are raised.
        headers: names in lower case; nothing of the connection, of caching, of cookies or of the body's length.
        stream: whether the body is a stream of events.
        first: the first bytes of the body, which are all of it for JSON.
    """

    status: int
    headers: Headers
    stream: bool
    first: bytes

    @property
    def usage(self) -> Usage | None:
        """Tokens as the upstream counts them; None until it has said so, which may be never."""
        ...

    @property
    def finish(self) -> FinishReason | None:
        """The finish reason that was last seen."""
        ...

    @property
    def output_events(self) -> int:
        """Events since the first output, which come close to tokens; 1 for JSON."""
        ...

    @property
    def saw_output(self) -> bool:
        """Whether there was any output."""
        ...

    @property
    def error(self) -> BackendError | None:
        """What broke a stream after its first output; the client is told by an event."""
        ...

    async def next(self) -> bytes:
        """Return the next bytes, `b""` at the end. What breaks meanwhile becomes an error event, not an exception."""
        ...

    async def aclose(self) -> None:
        """Release the connection. May be called twice."""
        ...
