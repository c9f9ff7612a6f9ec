"""The requests that one life of an engine child works on: who waits for which reply, and how many choices that makes.

Knows messages, no socket and no process. An id is forgotten at the same event on both sides: the delta with usage, the one
answer, an error, or our cancellation. A reply to a forgotten id is dropped: it and a cancellation may pass each other.
"""

import asyncio

from msgspec import Struct

from backends.child.messages import Deltas, Detokenized, Embedded, Errored, Tokenized
from backends.child.parent.mailbox import Mailbox
from backends.errors import BackendError, unpack_error
from backends.types import Embeddings, TokenList

Answer = Embeddings | TokenList | str


class Stream(Struct):
    """A running `Generate`: `choices` counts against the capacity until the stream leaves the table."""

    id: int
    choices: int
    mailbox: Mailbox


class InFlight:
    """The table. Attribute `choices` is how many choices are generated or wait for a slot."""

    def __init__(self) -> None:
        self.choices = 0
        self._next_id = 0
        self._streams: dict[int, Stream] = {}
        self._calls: dict[int, asyncio.Future[Answer]] = {}

    def __len__(self) -> int:
        return len(self._streams) + len(self._calls)

    @property
    def calls(self) -> int:
        """How many embeddings and tokenizations wait for their answer."""
        return len(self._calls)

    def new_id(self) -> int:
        """A number that no earlier request of this life had."""
        self._next_id += 1
        return self._next_id

    def open_stream(self, request_id: int, choices: int) -> Stream:
        """Register a generation of so many choices."""
        stream = self._streams[request_id] = Stream(request_id, choices, Mailbox())
        self.choices += choices
        return stream

    def open_call(self, request_id: int) -> asyncio.Future[Answer]:
        """Register a request with one answer."""
        call = self._calls[request_id] = asyncio.get_running_loop().create_future()
        return call

    def forget(self, request_id: int) -> bool:
        """Remove a request, and say whether it was still there: if so, the child may still be working on it."""
        stream = self._streams.pop(request_id, None)
        if stream is not None:
            self.choices -= stream.choices
            return True
        return self._calls.pop(request_id, None) is not None

    def deliver(self, reply: Deltas | Errored | Embedded | Tokenized | Detokenized) -> None:
        """Hand a reply to whoever waits for it."""
        match reply:
            case Deltas():
                streams = self._streams
                for request_id, delta in reply.items:
                    stream = streams.get(request_id)
                    if stream is not None:
                        stream.mailbox.put(delta)
                        if delta.usage is not None:
                            self.forget(request_id)
            case Errored():
                self._fail(reply.id, unpack_error(reply.error))
            case Detokenized():
                self._answer(reply.id, reply.text)
            case Embedded() | Tokenized():
                self._answer(reply.id, reply.result)

    def fail_all(self, error: BackendError) -> None:
        """End every request with an error."""
        for request_id in [*self._streams, *self._calls]:
            self._fail(request_id, error)

    def _answer(self, request_id: int, answer: Answer) -> None:
        call = self._calls.pop(request_id, None)
        if call is not None and not call.done():
            call.set_result(answer)

    def _fail(self, request_id: int, error: BackendError) -> None:
        # Each gets an error of its own: a raised one collects the traceback of whoever raised it.
        own = type(error)(error.message, param=error.param, code=error.code, retry_after_s=error.retry_after_s)
        stream = self._streams.get(request_id)
        if stream is not None:
            stream.mailbox.fail(own)
            self.forget(request_id)
        call = self._calls.pop(request_id, None)
        if call is not None and not call.done():
            call.set_exception(own)
