"""A backend that plays a script: for tests, demonstrations and load tests of everything around a model.

It keeps the whole contract of `backends.protocol` (slots, a bounded queue, stop strings, log probabilities, cancellation) and
is deterministic. It knows no language: tokens are bytes (ids 0 to 255), and sampling parameters, response formats and schemas
are taken but change nothing, because the script decides. Which reply is played depends only on the request: the number of
assistant messages in the conversation plus the index of the choice.
"""

import asyncio
import hashlib
import math
import struct
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from backends.errors import (
    BackendError,
    ContextOverflow,
    ErrorInfo,
    ModelNotFound,
    Overloaded,
    Rejected,
    Unavailable,
    Unsupported,
    unpack_error,
)
from backends.fake_script import FakeReply, echo_delta, play
from backends.types import (
    Chat,
    Delta,
    Embeddings,
    EmbedRequest,
    GenerateRequest,
    Health,
    ImagePart,
    ModelCard,
    Prompt,
    Text,
    TokenizeRequest,
    TokenList,
    Tokens,
    Usage,
)

VOCAB_SIZE = 256

ErrorKind = Literal["Rejected", "ContextOverflow", "Unsupported", "Overloaded", "Unavailable", "Failed", "TimedOut"]
Count = Annotated[int, Meta(ge=1)]


class FakeModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="engine", tag="fake"):
    """What is played. `context` is in tokens (bytes); `dimensions` 0 means no embeddings.

    With `error`, each request raises that class of `backends.errors` once it has given `error_after_tokens` tokens; 0 raises
    before the first delta.
    """

    replies: Annotated[tuple[FakeReply, ...], Meta(min_length=1)] = (FakeReply(text="Hello! I am a scripted model."),)
    token_delay_s: Annotated[float, Meta(ge=0, le=60)] = 0.0
    context: Count = 8192
    slots: Count = 8
    queue: Annotated[int, Meta(ge=0)] = 256
    dimensions: Annotated[int, Meta(ge=0, le=4096)] = 16
    error: ErrorKind | None = None
    error_after_tokens: Annotated[int, Meta(ge=0)] = 0


class FakeBackend:
    """Serves one scripted model under one name.

    Args:
        sleep: waits for seconds; a test passes its own.
    """

    def __init__(self, name: str, model: FakeModel, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._name = name
        self._model = model
        self._sleep = sleep
        self._created = int(time.time())
        self._running = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._pauses: set[asyncio.Future[None]] = set()
        self._closed = False

    async def models(self) -> tuple[ModelCard, ...]:
        """The one model."""
        embeds = ("embedding",) if self._model.dimensions else ()
        return (
            ModelCard(
                id=self._name,
                created=self._created,
                capabilities=("chat", "completion", *embeds),
                context_length=self._model.context,
                vocab_size=VOCAB_SIZE,
                architecture="fake",
            ),
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta]:
        """Play the script; see `Backend.generate`."""
        prompt = self._check(request)
        await self._enter()
        try:
            async with aclosing(self._play(request, prompt)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            self._leave()

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Vectors that depend on the bytes of each input alone."""
        self._check_model(request.model)
        dimensions = request.dimensions or self._model.dimensions
        if not self._model.dimensions:
            raise Unsupported(f"The model '{self._name}' has no embeddings.", param="model")
        if dimensions > self._model.dimensions:
            text = f"'dimensions' is {dimensions}, the model has {self._model.dimensions}."
            raise Rejected(text, param="dimensions")
        prompts = [_encode(item) for item in request.inputs]
        for index, prompt in enumerate(prompts):
            self._check_length(prompt, f"input[{index}]")
        return Embeddings(tuple(_vector(prompt, dimensions) for prompt in prompts), Usage(sum(map(len, prompts))))

    async def tokenize(self, request: TokenizeRequest) -> TokenList:
        """One token per byte."""
        self._check_model(request.model)
        data = _encode(request.prompt)
        return TokenList(tuple(data), tuple(bytes((byte,)) for byte in data))

    async def detokenize(self, model: str, ids: tuple[int, ...]) -> str:
        """The bytes as text."""
        self._check_model(model)
        return _encode(Tokens(ids)).decode("utf-8", "replace")

    async def health(self) -> Health:
        """Slots in use and requests that wait."""
        state: Literal["stopped", "ready"] = "stopped" if self._closed else "ready"
        waiting = sum(not waiter.done() for waiter in self._waiters)
        return Health(state=state, running=self._running, waiting=waiting, slots=self._model.slots)

    async def close(self) -> None:
        """Fail everything that runs or waits."""
        self._closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(_closed())
        for pause in self._pauses:
            pause.cancel()

    async def _play(self, request: GenerateRequest, prompt: bytes) -> AsyncGenerator[Delta]:
        room = self._model.context - len(prompt)
        scripts = [play(request, self._model.replies, index, room) for index in range(request.n)]
        tokens = 0
        self._maybe_fail(tokens)
        if request.echo:
            for index in range(request.n):
                yield echo_delta(prompt, index, request.logprobs)
        left = len(scripts)
        for delta in _interleave(scripts):
            await self._pause(delta.tokens)
            self._maybe_fail(tokens + delta.tokens - 1)
            tokens += delta.tokens
            left -= delta.finish is not None
            yield delta if left else _with_usage(delta, Usage(len(prompt), tokens))

    def _maybe_fail(self, tokens: int) -> None:
        if self._model.error is not None and tokens >= self._model.error_after_tokens:
            raise unpack_error(ErrorInfo(self._model.error, f"The script says {self._model.error}."))

    async def _pause(self, tokens: int) -> None:
        """Wait as long as `tokens` take; without a delay still let other requests run."""
        if not self._model.token_delay_s:
            await asyncio.sleep(0)
        else:
            await self._sleep_unless_closed(self._model.token_delay_s * tokens)
        if self._closed:
            raise _closed()

    async def _sleep_unless_closed(self, delay_s: float) -> None:
        pause = asyncio.ensure_future(self._nap(delay_s))
        self._pauses.add(pause)
        try:
            await pause
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise _closed() from None
            raise
        finally:
            pause.cancel()
            self._pauses.discard(pause)

    async def _nap(self, delay_s: float) -> None:
        await self._sleep(delay_s)

    async def _enter(self) -> None:
        if self._running < self._model.slots:
            self._running += 1
            return
        if len(self._waiters) >= self._model.queue:
            raise Overloaded(f"The queue is full: {len(self._waiters)} requests wait.", retry_after_s=1.0)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # The slot may have been handed over in the very moment of the cancellation.
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._leave()
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _leave(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._running -= 1

    def _check(self, request: GenerateRequest) -> bytes:
        self._check_model(request.model)
        for token in request.sampling.logit_bias:
            if token >= VOCAB_SIZE:
                text = f"'logit_bias' has the token id {token}, the vocabulary ends at {VOCAB_SIZE - 1}."
                raise Rejected(text, param="logit_bias")
        for token in request.stop_token_ids:
            if token >= VOCAB_SIZE:
                text = f"'stop_token_ids' has the token id {token}, the vocabulary ends at {VOCAB_SIZE - 1}."
                raise Rejected(text, param="stop_token_ids")
        prompt = _encode(request.prompt)
        self._check_length(prompt, None)
        return prompt

    def _check_length(self, prompt: bytes, param: str | None) -> None:
        if len(prompt) >= self._model.context:
            text = f"The prompt has {len(prompt)} tokens, the model's context has {self._model.context}."
            raise ContextOverflow(text, param=param)

    def _check_model(self, model: str) -> None:
        if self._closed:
            raise _closed()
        if model != self._name:
            raise ModelNotFound(f"The model '{model[:200]}' is not served here.", param="model")


def _closed() -> BackendError:
    return Unavailable("The backend was closed.")


def _interleave(scripts: list[Iterator[Delta]]) -> Iterator[Delta]:
    """One delta of each choice in turn, as a batch of sequences would give them."""
    while scripts:
        for script in list(scripts):
            delta = next(script, None)
            if delta is None:
                scripts.remove(script)
            else:
                yield delta


def _with_usage(delta: Delta, usage: Usage) -> Delta:
    return structs.replace(delta, usage=usage)


def _encode(prompt: Prompt) -> bytes:
    match prompt:
        case Text():
            return prompt.text.encode()
        case Tokens():
            for token in prompt.ids:
                if token >= VOCAB_SIZE:
                    raise Rejected(f"The token id {token} is not in the vocabulary, which ends at {VOCAB_SIZE - 1}.")
            return bytes(prompt.ids)
        case Chat():
            return _render(prompt)


def _render(chat: Chat) -> bytes:
    """The chat template of a model without one: a line per message, then the head of the answer."""
    lines = [tool.function.name for tool in chat.tools]
    for index, message in enumerate(chat.messages):
        if any(isinstance(part, ImagePart) for part in message.content or () if not isinstance(part, str)):
            param = f"messages[{index}].content"
            raise Unsupported("This model reads no images.", param=param)
        calls = "".join(f" {call.function.name}({call.function.arguments})" for call in message.tool_calls)
        lines.append(f"{message.role}: {message.text}{calls}")
    return ("\n".join(lines) + ("" if chat.continue_final else "\nassistant:")).encode()


def _vector(data: bytes, dimensions: int) -> bytes:
    seed = hashlib.shake_256(data).digest(dimensions)
    numbers = [byte - 127.5 for byte in seed]
    length = math.sqrt(sum(number * number for number in numbers))
    return struct.pack(f"<{dimensions}f", *(number / length for number in numbers))
