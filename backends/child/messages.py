"""What an engine child and its parent say to each other: msgspec structs in MessagePack, framed by `frames`.

Each life of the child has a socket pair of its own, so a message can never reach the wrong incarnation. Commands go to the
child, replies come back; requests are named by the id that the parent chose for this life (an int: request ids of users may
repeat). The last `Delta` of a stream has `usage`, and an `Errored` ends it too; after either, the id is forgotten on both
sides.
"""

import msgspec
from msgspec import Struct

from backends.errors import ErrorInfo
from backends.types import Delta, Embeddings, EmbedRequest, GenerateRequest, ModelCard, TokenizeRequest, TokenList


class Generate(Struct, frozen=True, tag=True, array_like=True):
    """Answer a request; replies are `Deltas`, the last with usage, or one `Errored`."""

    id: int
    request: GenerateRequest


class Embed(Struct, frozen=True, tag=True, array_like=True):
    """Turn texts into vectors; the reply is `Embedded` or `Errored`."""

    id: int
    request: EmbedRequest


class Tokenize(Struct, frozen=True, tag=True, array_like=True):
    """Turn text into token ids; the reply is `Tokenized` or `Errored`."""

    id: int
    request: TokenizeRequest


class Detokenize(Struct, frozen=True, tag=True, array_like=True):
    """Turn token ids into text; the reply is `Detokenized` or `Errored`."""

    id: int
    ids: tuple[int, ...]


class Cancel(Struct, frozen=True, tag=True, array_like=True):
    """Stop working on a request in whatever state it is. There is no reply; an unknown id is not an error."""

    id: int


class Shutdown(Struct, frozen=True, tag=True, array_like=True):
    """Free everything and exit with status 0."""


Command = Generate | Embed | Tokenize | Detokenize | Cancel | Shutdown


class Ready(Struct, frozen=True, tag=True, array_like=True):
    """The model is loaded and has computed one token.

    `context` is the number of KV cells that all requests share, `context_per_request` the most one request may use.
    """

    card: ModelCard
    slots: int
    context: int
    context_per_request: int
    load_s: float


class LoadFailed(Struct, frozen=True, tag=True, array_like=True):
    """The model cannot be served, and a new attempt will not help (bad file, not enough memory): the child exits."""

    message: str


class Deltas(Struct, frozen=True, tag=True, array_like=True):
    """What one step produced, for all requests in it."""

    items: tuple[tuple[int, Delta], ...]


class Errored(Struct, frozen=True, tag=True, array_like=True):
    """A request ended with an error."""

    id: int
    error: ErrorInfo


class Embedded(Struct, frozen=True, tag=True, array_like=True):
    """Answer to `Embed`."""

    id: int
    result: Embeddings


class Tokenized(Struct, frozen=True, tag=True, array_like=True):
    """Answer to `Tokenize`."""

    id: int
    result: TokenList


class Detokenized(Struct, frozen=True, tag=True, array_like=True):
    """Answer to `Detokenize`."""

    id: int
    text: str


class Heartbeat(Struct, frozen=True, tag=True, array_like=True):
    """Sent every `HEARTBEAT_S`, also while a step runs and while the model loads.

    `step_age_s` is how long the step that runs now has been running (0 when none): a child whose heart beats but whose step
    never ends hangs in native code. `gauges` and `counters` are for `/metrics`.
    """

    running: int
    waiting: int
    step_age_s: float
    gauges: dict[str, float]
    counters: dict[str, float]


Reply = Ready | LoadFailed | Deltas | Errored | Embedded | Tokenized | Detokenized | Heartbeat

HEARTBEAT_S = 0.5

encoder = msgspec.msgpack.Encoder()
command_decoder = msgspec.msgpack.Decoder(Command)
reply_decoder = msgspec.msgpack.Decoder(Reply)
