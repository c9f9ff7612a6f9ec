"""The one interface between the gateway and whatever answers.

`generate` is the whole streaming contract: items are deltas, the last one carries `finish` and `usage`, failure is an exception
from `backends.errors`, and **closing the iterator is the cancellation**. Whoever wraps an iterator therefore holds it in
`contextlib.aclosing`. There are no callbacks and no queues in the interface. `tests/contract/test_backend.py` is this page as a
test-suite; every implementation passes it.
"""

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from backends.forwarding import Forwarded, ForwardRequest
from backends.types import (
    Delta,
    Embeddings,
    EmbedRequest,
    GenerateRequest,
    Health,
    ModelCard,
    TokenizeRequest,
    TokenList,
)


@runtime_checkable
class Backend(Protocol):
    """Something that serves one or more models."""

    async def models(self) -> tuple[ModelCard, ...]:
        """Name the models it serves, also while they load. Never raises."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta]:
        """Answer one request.

        Everything that can be refused is refused by an exception before the first delta. Every choice `0 <= index < n` ends
        with exactly one delta that has `finish`, and the last delta of all carries `usage`. After `aclose` (in any state,
        also while the request still waits for a slot) the backend stops working on it within one step and holds nothing for
        it.

        Raises:
            Rejected: the request is at fault (`ContextOverflow` and `Unsupported` are special cases).
            ModelNotFound: the model is not served here.
            Overloaded: the queue is full.
            Unavailable: the model is loading, restarting or has been given up.
            Failed: the engine broke, before or in the middle of the answer.
        """
        ...

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Turn texts into vectors. Raises like `generate`; `Unsupported` when the model has no embeddings."""
        ...

    async def tokenize(self, request: TokenizeRequest) -> TokenList:
        """Turn text, or a conversation rendered by the chat template, into token ids. Raises like `generate`."""
        ...

    async def detokenize(self, model: str, ids: tuple[int, ...]) -> str:
        """Turn token ids into text; incomplete characters become U+FFFD. Raises `Rejected` for ids out of vocabulary."""
        ...

    async def health(self) -> Health:
        """Say how it is, from what is already known: never waits for the engine, never raises."""
        ...

    async def close(self) -> None:
        """Release everything; running requests fail with `Unavailable`. May be called twice."""
        ...


@runtime_checkable
class Forwarder(Protocol):
    """A backend that speaks the client's own protocol: it can pass a request and its answer on as bytes."""

    async def forward(self, request: ForwardRequest) -> Forwarded:
        """Send a request on, and return when the first output is there.

        For a stream that is the first event with content, a tool call or a finish reason; whatever came before is held back
        with it. For JSON it is the whole body. So an upstream that breaks before its first output can be replaced by another.
        Whoever gets a `Forwarded` closes it.

        Raises: like `Backend.generate`.
        """
        ...
