"""What the child says and hears: commands in, deltas out, a heartbeat in between.

Three threads meet here. The main thread listens and beats, and never waits for anything else, so cancels are heard in every
state. A thread of its own prepares requests (templates, tokenising, grammars). The engine's own thread turns what a step
brought into deltas and sends them itself: with all cores computing, waking another thread for that costs more than the work.
"""

import logging
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from time import monotonic
from typing import Generic, TypeVar

from backends.child import messages as m
from backends.child.embedding import shortened, token_lists
from backends.child.frames import FrameReader, frame
from backends.child.prepare import Prepared
from backends.child.sequence import Sequence
from backends.child.service import Service
from backends.child.ticket import Ticket
from backends.child.work import Broken, EmbedJob, Event, PromptScored, Sampled, Vectors
from backends.errors import BackendError, Failed, Unsupported, pack_error
from backends.types import Delta, Embeddings, EmbedRequest, GenerateRequest, TokenizeRequest, TokenList, Usage

log = logging.getLogger("baton.engine")

S = TypeVar("S", bound=Sequence)
R = TypeVar("R")

_READ_BYTES = 1 << 18


class Talker(Generic[S]):
    """Serves one parent over one connected socket until it says `Shutdown` or is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._preparing = ThreadPoolExecutor(1, "prepare")
        self._service: Service[S] | None = None
        self._changing = threading.Lock()  # a request moves between the next three, or leaves them, as one step
        self._pending: set[int] = set()  # being prepared
        self._tickets: dict[int, Ticket[S]] = {}
        self._embedding: dict[int, tuple[EmbedRequest, int]] = {}
        self._closing = False
        self._next_beat = 0.0

    def run(self) -> None:
        """Talk until told to shut down. The body of the main thread."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        reader = FrameReader()
        while not self._closing:
            self._beat()
            if not poll.poll(max(0, ceil((self._next_beat - monotonic()) * 1000))):
                continue
            data = self._socket.recv(_READ_BYTES)
            if not data:
                break
            for body in reader.feed(data):
                self._obey(m.command_decoder.decode(body))
        self._preparing.shutdown(wait=False, cancel_futures=True)
        if self._service is not None:
            self._service.close()

    def ready(self, service: Service[S]) -> None:
        """Begin to serve, now that the model is loaded. From any thread."""
        self._service = service
        self._send(m.Ready(service.card, service.slots, service.context, service.limit, service.load_s))

    def failed(self, message: str) -> None:
        """Tell the parent that loading is pointless, and end. From any thread."""
        self._send(m.LoadFailed(message))
        self._closing = True
        self._socket.shutdown(socket.SHUT_RD)  # wakes the main thread

    def emit(self, events: list[Event]) -> None:
        """Send what a step brought. Called by the engine's thread."""
        deltas: list[tuple[int, Delta]] = []
        for event in events:
            match event:
                case Sampled(sequence):
                    if ticket := self._tickets.get(sequence.request):
                        new, ended = ticket.sampled(event)
                        deltas += [(sequence.request, delta) for delta in new]
                        self._let_go(sequence.request, ticket, ended)
                case PromptScored(sequence):
                    if ticket := self._tickets.get(sequence.request):
                        new, ended = ticket.prompt_scored(event)
                        deltas += [(sequence.request, delta) for delta in new]
                        self._let_go(sequence.request, ticket, ended)
                case Vectors(identifier, vectors):
                    self._embedded(identifier, vectors)
                case Broken(identifier, error):
                    if identifier in self._tickets or identifier in self._embedding:
                        self._send_deltas(deltas)  # whatever came before the fault is still part of the answer
                        deltas = []
                        self._cancel(identifier)
                        self._error(identifier, error)
        self._send_deltas(deltas)

    def _let_go(self, identifier: int, ticket: Ticket[S], ended: S | None) -> None:
        if ended is not None and self._service is not None:
            self._service.finish([ended])
        if ticket.is_done:
            self._tickets.pop(identifier, None)

    def _send(self, reply: m.Reply) -> None:
        data = frame(m.encoder.encode(reply))
        with self._sending:
            self._socket.sendall(data)

    def _send_deltas(self, items: list[tuple[int, Delta]]) -> None:
        if items:
            self._send(m.Deltas(tuple(items)))

    def _beat(self) -> None:
        now = monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + m.HEARTBEAT_S
        running = waiting = 0
        step_age = 0.0
        gauges: dict[str, float] = {}
        counters: dict[str, float] = {}
        if self._service:
            running, waiting = self._service.load()
            step_age = self._service.step_age_s()
            gauges, counters = self._service.figures()
        self._send(m.Heartbeat(running, waiting + len(self._pending), step_age, gauges, counters))

    def _obey(self, command: m.Command) -> None:
        service = self._service
        assert service is not None  # the parent sends nothing but Shutdown before Ready
        match command:
            case m.Generate(id=i, request=asked):
                self._prepare(i, lambda: service.preparer.prepare(i, asked), self._start(i, asked))
            case m.Embed(id=i, request=texts):
                self._prepare(i, lambda: self._embed_inputs(texts), self._start_embedding(i, texts))
            case m.Tokenize(id=i, request=text):
                self._prepare(i, lambda: self._token_list(text), lambda ids: self._send(m.Tokenized(i, ids)))
            case m.Detokenize(id=i, ids=ids):
                self._prepare(i, lambda: self._text_of(ids), lambda text: self._send(m.Detokenized(i, text)))
            case m.Cancel(id=i):
                self._cancel(i)
            case m.Shutdown():
                self._closing = True

    def _prepare(self, identifier: int, work: Callable[[], R], then: Callable[[R], None]) -> None:
        """Run `work` and `then` in the preparing thread, unless the request is cancelled before."""
        self._pending.add(identifier)

        def prepare() -> None:
            if identifier not in self._pending:
                return
            try:
                result = work()
            except Exception as error:
                if self._leave_preparation(identifier):
                    self._error(identifier, error)
                return
            with self._changing:
                if identifier in self._pending:
                    self._pending.discard(identifier)
                    then(result)

        self._preparing.submit(prepare)

    def _leave_preparation(self, identifier: int) -> bool:
        """Take a request out of preparation; False when it was cancelled already."""
        with self._changing:
            was_pending = identifier in self._pending
            self._pending.discard(identifier)
        return was_pending

    def _error(self, identifier: int, error: Exception) -> None:
        if not isinstance(error, BackendError):
            log.error("preparing a request failed", exc_info=error)
            error = Failed("the engine could not prepare this request")
        self._send(m.Errored(identifier, pack_error(error)))

    def _start(self, identifier: int, request: GenerateRequest) -> Callable[[Prepared[S]], None]:
        def start(prepared: Prepared[S]) -> None:
            assert self._service is not None
            words = self._service.vocabulary
            ticket = Ticket(request, prepared, words.piece, words.special_piece)
            first = ticket.echo()
            if request.max_tokens == 0 and not prepared.sequences[0].all_logits:
                first += ticket.end_without_tokens()
            self._send_deltas([(identifier, delta) for delta in first])
            if not ticket.is_done:
                self._tickets[identifier] = ticket
                self._service.submit(prepared.sequences)

        return start

    def _cancel(self, identifier: int) -> None:
        with self._changing:
            self._pending.discard(identifier)
            ticket = self._tickets.pop(identifier, None)
            embeds = self._embedding.pop(identifier, None) is not None
        if self._service is not None and ticket is not None:
            self._service.finish(ticket.sequences)
        if self._service is not None and self._service.embedding is not None and embeds:
            self._service.embedding.cancel(identifier)

    def _embed_inputs(self, request: EmbedRequest) -> list[list[int]]:
        assert self._service is not None
        if self._service.embedding is None:
            raise Unsupported(f"the engine of the model {request.model} makes no embeddings", param="model")
        return token_lists(request, self._service.embedding, self._service.preparer.tokens_of)

    def _start_embedding(self, identifier: int, request: EmbedRequest) -> Callable[[list[list[int]]], None]:
        def start(inputs: list[list[int]]) -> None:
            assert self._service is not None
            assert self._service.embedding is not None  # else there were no inputs
            self._embedding[identifier] = request, sum(map(len, inputs))
            self._service.embedding.submit(EmbedJob(identifier, inputs))

        return start

    def _embedded(self, identifier: int, vectors: list[bytes]) -> None:
        if entry := self._embedding.pop(identifier, None):
            request, tokens = entry
            cut = tuple(shortened(vector, request.dimensions) for vector in vectors)
            self._send(m.Embedded(identifier, Embeddings(cut, Usage(prompt_tokens=tokens))))

    def _token_list(self, request: TokenizeRequest) -> TokenList:
        assert self._service is not None
        ids = self._service.preparer.tokenize(request)
        return TokenList(ids, tuple(self._service.vocabulary.special_piece(i) for i in ids))

    def _text_of(self, ids: tuple[int, ...]) -> str:
        assert self._service is not None
        self._service.preparer.check_ids(ids, "tokens")
        return self._service.vocabulary.detokenize(ids)
