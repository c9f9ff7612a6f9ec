"""What is remembered around a request: the conversation that it continues, and answers that may be given again.

Both need the complete answer, so both listen to the same bytes on their way to the client. What must be written is written
before the end is sent: a client that has seen the end may continue at once.
"""

import time
from types import TracebackType
from typing import Literal, NamedTuple, Self, cast
from uuid import uuid4

import msgspec
from litestar.types import ASGIApp
from msgspec import Raw, Struct

from backends.errors import BackendError, Failed
from backends.types import FinishReason, Usage
from gateway.context.assemble import Assembler
from gateway.context.cache_key import cache_key, choose_mode, read_fields, wanted_mode
from gateway.context.cached_answer import CachedAnswer, Endpoint
from gateway.context.conversations import Conversations
from gateway.context.replay import replay_json, replay_stream
from gateway.context.response_cache import MISS_HEADERS, Lease, ResponseCache
from gateway.dispatch.answer import EVENT_HEADERS, JSON_HEADERS, Answer
from gateway.errors import InvalidRequest
from gateway.response import BytesReply
from gateway.routes.asked import Asked
from gateway.translate.body import Body

_ID_PREFIX = {"chat": "chatcmpl", "completions": "cmpl", "embeddings": "embd"}
_MAX_ANSWER_BYTES = 8 << 20


class Memories(NamedTuple):
    """Where it is remembered. `chats` keeps the messages of conversations over the chat API."""

    answers: ResponseCache
    chats: Conversations


class _Turn(Struct):
    messages: list[Raw] = []


class _Choice(Struct):
    message: Raw


class _Completion(Struct):
    choices: list[_Choice]


_TURN = Body(_Turn)


class Memory:
    """What is remembered of one request. A context manager: whoever waits for the same answer is told when it ends."""

    def __init__(self, asked: Asked, endpoint: Endpoint, memories: Memories) -> None:
        self._asked = asked
        self._endpoint = endpoint
        self._memories = memories
        self._lease: Lease | None = None
        self._new_messages: list[bytes] = []
        self._is_turn_kept = False
        self.hit: CachedAnswer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._lease is not None:
            self._lease.__exit__(kind, error, trace)

    async def continue_conversation(self) -> None:
        """Put the kept messages before those of the request."""
        asked = self._asked
        if asked.call.units > 1:
            raise InvalidRequest(
                "A kept conversation needs one answer per turn: 'n' must be 1.", param="n", code="invalid_value"
            )
        new = _TURN.decode(asked.body).messages
        identity = asked.call.identity
        kept = await self._memories.chats.get(identity.tenant, asked.call.conversation)
        self._new_messages = [bytes(memoryview(message)) for message in new]
        if kept is not None:
            fields = msgspec.json.decode(asked.body, type=dict[str, Raw])
            fields["messages"] = Raw(msgspec.json.encode([*map(Raw, kept.items), *new]))
            asked.replace_body(msgspec.json.encode(fields))

    async def look_up(self) -> None:
        """Find a kept answer, or become the one who keeps the new one."""
        asked, answers = self._asked, self._memories.answers
        call, fields = asked.call, read_fields(asked.body)
        mode = choose_mode(wanted_mode(call.cache or None), answers.config.default, self._endpoint, fields)
        if mode == "off":
            return
        # Tags decide which deployments may answer, and so does the name.
        answering = " ".join((call.model, *sorted(call.tags)))
        key = cache_key(call.identity.tenant, self._endpoint, answering, fields)
        found = answers.refresh(key, self._endpoint) if mode == "refresh" else await answers.begin(key, self._endpoint)
        if isinstance(found, Lease):
            self._lease = found
            call.headers += MISS_HEADERS
        else:
            self.hit = found
            call.headers += answers.hit_headers(found)

    async def replay(self, hit: CachedAnswer) -> ASGIApp:
        """The kept answer as a response. It is a turn of the conversation like any other."""
        await self._keep_turn(hit.body)
        id, created, head = f"{_ID_PREFIX[self._endpoint]}-{uuid4().hex}", int(time.time()), self._asked.head
        if not head.stream:
            return BytesReply(replay_json(hit, id, created), [*JSON_HEADERS, *self._asked.call.headers])
        events = b"".join(replay_stream(hit, id, created, include_usage=head.wants_usage))
        return BytesReply(events, [*EVENT_HEADERS, *self._asked.call.headers])

    async def listen(self, answer: Answer) -> Answer:
        """The same answer, remembered when it is complete."""
        if self._lease is None and not self._asked.call.conversation:
            return answer
        return await _Heard(answer, self, self._endpoint, self._asked.call.units).begin()

    async def keep(self, body: bytes) -> None:
        """Remember a complete answer."""
        call = self._asked.call
        await self._keep_turn(body)
        # What stood in, or is on trial, must not answer for the model later.
        if self._lease is not None and not call.trail.fallback and not call.trail.canary:
            await self._lease.keep(body)

    async def _keep_turn(self, body: bytes) -> None:
        call = self._asked.call
        if call.conversation and not self._is_turn_kept:
            # Marked before the wait: of two hedged attempts that end together, one is the turn.
            turn = [*self._new_messages, _message_of(body)]
            self._is_turn_kept = True
            await self._memories.chats.append(call.identity.tenant, call.conversation, turn)


def _message_of(body: bytes) -> bytes:
    """The assistant's message in a complete answer. Raises Failed: there is none, so the conversation could not go on."""
    try:
        message = msgspec.json.decode(body, type=_Completion).choices[0].message
        msgspec.json.decode(message, type=dict[str, Raw])
    except (msgspec.DecodeError, IndexError):
        text = "The upstream server answered without a message that the conversation could keep."
        raise Failed(text, code="upstream_protocol_error") from None
    return bytes(memoryview(message))


class _Heard:
    """An answer that somebody listens to."""

    def __init__(self, answer: Answer, memory: Memory, endpoint: Endpoint, choices: int) -> None:
        self._answer = answer
        self._memory = memory
        self._assembler: Assembler | None = None
        self.headers = answer.headers
        self.is_stream = answer.is_stream
        self.first = answer.first
        self.ended = answer.ended
        if answer.is_stream:
            kind: Literal["chat", "completions"] = "chat" if endpoint == "chat" else "completions"
            self._assembler = Assembler(kind, choices=choices, max_bytes=_MAX_ANSWER_BYTES)

    async def begin(self) -> "_Heard":
        """Hear the first bytes, which may be all."""
        try:
            await self._hear(self.first)
        except BaseException:
            await self._answer.aclose()
            raise
        return self

    @property
    def usage(self) -> Usage | None:
        """See `Answer`."""
        return self._answer.usage

    @property
    def finish(self) -> FinishReason | None:
        """See `Answer`."""
        return self._answer.finish

    @property
    def outputs(self) -> int:
        """See `Answer`."""
        return self._answer.outputs

    @property
    def error(self) -> BackendError | None:
        """See `Answer`."""
        return self._answer.error

    async def next(self) -> bytes:
        """See `Answer`."""
        data = await self._answer.next()
        self.ended = self._answer.ended
        await self._hear(data)
        return data

    async def aclose(self) -> None:
        """See `Answer`."""
        await self._answer.aclose()

    async def _hear(self, data: bytes) -> None:
        if self._assembler is None:
            await self._memory.keep(data)
            return
        self._assembler.feed(data)
        if b"[DONE]" in data:
            # An upstream need not say what an answer took.
            body = self._assembler.finish(self._answer.usage or Usage(completion_tokens=self._answer.outputs))
            if body is not None:
                await self._memory.keep(body)


async def recall(asked: Asked, endpoint: str, memories: Memories) -> Memory | None:
    """What there is to remember for a request; None for most.

    Raises:
        InvalidRequest: a header asks for what the endpoint does not have.
        ContextUnavailable: the conversation cannot be read now.
    """
    call = asked.call
    if not call.conversation and not call.cache and memories.answers.config.default == "off":
        return None
    if call.conversation and endpoint != "chat":
        text = "The header 'x-baton-conversation' is for chat completions; the Responses API has 'conversation' in its body."
        raise InvalidRequest(text, param="x-baton-conversation", code="unsupported_value")
    if endpoint not in _ID_PREFIX:
        return None
    memory = Memory(asked, cast("Endpoint", endpoint), memories)
    if call.conversation:
        await memory.continue_conversation()
    await memory.look_up()
    return memory
