"""A stream of events on its way to the client: bytes in, bytes out, and what is learnt on the way.

Pure: no connection, no clock. What is the same for every API is here; `chat_events` and `responses_events` know one each.
"""

import re

from backends.errors import BackendError
from backends.remote.json_fields import encode
from backends.remote.sse import Event, EventSplitter
from backends.types import FinishReason, Usage

# A quote inside a JSON string has a backslash before it, so this never matches in what a model wrote.
_MODEL = re.compile(rb'"model"\s*:\s*"(?:[^"\\]|\\.)*"')


class ModelName:
    """Puts the public name in the place of the upstream's, without decoding anything.

    Args:
        public: the name that the client knows.
    """

    def __init__(self, public: str) -> None:
        self._public = b'"model":' + encode(public)
        self._theirs = b""

    def put(self, data: bytes) -> bytes:
        """Rename the model in whole events. The name that is replaced is the one in the first event that has one."""
        if not self._theirs:
            found = _MODEL.search(data)
            if found is None:
                return data
            self._theirs = found.group()
        return data if self._theirs == self._public else data.replace(self._theirs, self._public)

    def put_once(self, body: bytes) -> bytes:
        """Rename the model in a whole answer."""
        found = _MODEL.search(body)
        if found is None or found.group() == self._public:
            return body
        return body[: found.start()] + self._public + body[found.end() :]


class StreamRewriter:
    """Passes events on. A subclass says what an event means.

    Attributes:
        usage, finish, output_events, saw_output: as in `Forwarded`.
        ended: nothing more is to be read.
        error: why it ended, when that was no proper end.
    """

    def __init__(self, public_model: str, max_event_bytes: int) -> None:
        self.usage: Usage | None = None
        self.finish: FinishReason | None = None
        self.output_events = 0
        self.saw_output = False
        self.ended = False
        self.error: BackendError | None = None
        self._model = ModelName(public_model)
        self._splitter = EventSplitter(max_event_bytes)

    def push(self, piece: bytes) -> bytes:
        """Take bytes of the upstream; return what the client is to see, which may be nothing yet."""
        try:
            events = self._splitter.push(piece)
        except BackendError as error:
            self.fail(error)
            return b""
        return self._rewrite_all(events)

    def finish_input(self) -> bytes:
        """The upstream's body ended; return what the client is to see of its rest."""
        rest = b"" if self.ended else self._rewrite_all(self._splitter.finish())
        if not self.ended:
            self._ended_early()
        return rest

    def fail(self, error: BackendError) -> None:
        """End with an error."""
        self.ended = True
        self.error = error

    def closing(self) -> bytes:
        """The last bytes of a stream that had output: an error event where it broke, and the API's end mark."""
        raise NotImplementedError

    def _rewrite(self, event: Event) -> bytes:
        """What the client sees of an event. Raises `BackendError` where it ends the stream."""
        raise NotImplementedError

    def _ended_early(self) -> None:
        """The body ended without the API's end mark."""
        raise NotImplementedError

    def _rewrite_all(self, events: list[Event]) -> bytes:
        shown: list[bytes] = []
        for event in events:
            try:
                shown.append(self._rewrite(event))
            except BackendError as error:
                self.fail(error)
            if self.ended:
                break
        return b"".join(shown)
