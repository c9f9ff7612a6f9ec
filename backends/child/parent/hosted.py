"""An engine as the gateway sees it: a `Backend` whose work is done by a supervised child process.

Loads nothing native and nothing large: the model, its tokenizer and its templates live in the child. Here is only who asked
what, whether there is room for it, and what the caller is told when there is not.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TypeVar

from backends.child.config import ChildConfig
from backends.child.messages import Cancel, Command, Detokenize, Embed, Generate, Tokenize
from backends.child.parent.channel import ChannelFull
from backends.child.parent.in_flight import Answer
from backends.child.parent.life import Life
from backends.child.parent.supervisor import Supervisor
from backends.errors import Failed, ModelNotFound, Overloaded, Rejected
from backends.types import Delta, Embeddings, EmbedRequest, GenerateRequest, Health, ModelCard, TokenizeRequest, TokenList

_RETRY_AFTER_S = 1.0
_MAX_NAME_CHARS = 200

AnswerT = TypeVar("AnswerT", Embeddings, TokenList, str)
ConfigT = TypeVar("ConfigT", bound=ChildConfig)


class HostedBackend:
    """Serves one model under one name; `start` it before use.

    Args:
        command: program and arguments that start a child, without the options of `backends.child.worker`, which are added.
        describe: makes a card from the model's name and settings, by reading as little of the file as a check takes. Called in
            a thread before each start, so that no native code meets a file that is damaged: then it raises LoadError.
    """

    def __init__(
        self, name: str, config: ConfigT, *, command: Sequence[str], describe: Callable[[str, ConfigT], ModelCard]
    ) -> None:
        self._name = name
        self._config: ChildConfig = config
        self._supervisor = Supervisor(name, config, command, partial(describe, name, config))

    async def start(self) -> None:
        """Begin to load the model and return at once; `health` says when it is ready, or why it never will be."""
        self._supervisor.start()

    async def models(self) -> tuple[ModelCard, ...]:
        """The one model; before the file was read only its name."""
        return (self._supervisor.card,)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta]:
        """Answer one request; see `Backend.generate`."""
        life = self._life_for(request.model)
        self._demand_room(life, request.n)
        stream = life.in_flight.open_stream(life.in_flight.new_id(), request.n)
        _send(life, Generate(stream.id, request), stream.id)
        try:
            ended = False
            while not ended:
                for delta in await stream.mailbox.take():
                    ended = delta.usage is not None
                    yield delta
        finally:
            # Only still there if neither the end of the answer nor an error has come.
            if life.in_flight.forget(stream.id):
                life.channel.send_surely(Cancel(stream.id))

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Turn texts into vectors; see `Backend.embed`."""
        return await self._ask(request.model, Embeddings, lambda call_id: Embed(call_id, request))

    async def tokenize(self, request: TokenizeRequest) -> TokenList:
        """Turn text or a conversation into token ids; see `Backend.tokenize`."""
        return await self._ask(request.model, TokenList, lambda call_id: Tokenize(call_id, request))

    async def detokenize(self, model: str, ids: tuple[int, ...]) -> str:
        """Turn token ids into text; see `Backend.detokenize`."""
        return await self._ask(model, str, lambda call_id: Detokenize(call_id, ids))

    async def health(self) -> Health:
        """The state of the supervision with the figures of the child's last heartbeat, at most half a second old."""
        supervisor = self._supervisor
        life = supervisor.life
        beat = life.beat if life is not None else None
        return Health(
            state=supervisor.state,
            detail=supervisor.detail,
            running=beat.running if beat is not None else 0,
            waiting=beat.waiting if beat is not None else 0,
            slots=life.slots if life is not None else self._config.slots,
            gauges=dict(beat.gauges) if beat is not None else {},
            counters=supervisor.counters,
        )

    async def close(self) -> None:
        """End the child, asked first and killed after 3 s; running requests fail with `Unavailable`. May be called twice."""
        await self._supervisor.close()

    async def _ask(self, model: str, kind: type[AnswerT], command: Callable[[int], Command]) -> AnswerT:
        life = self._life_for(model)
        limit = life.slots + self._config.queue
        if life.in_flight.calls >= limit:
            text = f"{limit} embeddings and tokenizations wait for the model '{self._name}' already (slots + queue)."
            raise Overloaded(text, retry_after_s=_RETRY_AFTER_S)
        call_id = life.in_flight.new_id()
        call = life.in_flight.open_call(call_id)
        _send(life, command(call_id), call_id)
        try:
            answer: Answer = await call
        finally:
            if life.in_flight.forget(call_id):
                life.channel.send_surely(Cancel(call_id))
        if not isinstance(answer, kind):
            raise Failed(f"The engine of the model '{self._name}' gave an answer of another kind.")
        return answer

    def _life_for(self, model: str) -> Life:
        if model != self._name:
            raise ModelNotFound(f"The model '{model[:_MAX_NAME_CHARS]}' is not served here.", param="model")
        return self._supervisor.serving()

    def _demand_room(self, life: Life, choices: int) -> None:
        """Refuse what neither a slot nor the queue can take."""
        slots, queue, taken = life.slots, self._config.queue, life.in_flight.choices
        if choices > slots + queue:
            text = f"'n' is {choices}, the model '{self._name}' has {slots} slots and a queue of {queue}."
            raise Rejected(text, param="n")
        if taken + choices > slots + queue:
            text = (
                f"The model '{self._name}' has {slots} slots and a queue of {queue}: {taken} choices run or wait,"
                f" and {choices} more do not fit."
            )
            raise Overloaded(text, retry_after_s=_RETRY_AFTER_S)


def _send(life: Life, command: Command, request_id: int) -> None:
    """Send a command for a registered request, which is forgotten if that does not work."""
    try:
        life.channel.send(command)
    except ChannelFull:
        life.in_flight.forget(request_id)
        raise Overloaded("The engine does not take commands at the moment.", retry_after_s=_RETRY_AFTER_S) from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        # JSON knows integers of any size, MessagePack up to 64 bits; strings may hold half of a surrogate pair.
        life.in_flight.forget(request_id)
        raise Rejected(f"The request cannot be passed to the engine: {type(error).__name__}: {str(error)[:200]}") from None
