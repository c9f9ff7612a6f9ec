"""What the child says and hears: commands in, deltas out, a heartbeat in between.

Three threads meet here. The main thread listens and beats, and never waits for anything else, so cancels are heard in every
state. A thread of its own prepares requests (templates, tokenising, grammars). The owner of llama.cpp turns what a step brought
into deltas and sends them itself: with all cores computing, waking another thread for that costs more than the work.
"""

import logging
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from time import monotonic
from typing import TypeVar

import numpy as np

from backends.errors import BackendError, ContextOverflow, Failed, Rejected, pack_error
from backends.types import Delta, Embeddings, EmbedRequest, GenerateRequest, TokenizeRequest, TokenList, Usage
from edge import messages as m
from edge.frames import FrameReader, frame
from edge.prepare import Prepared
from edge.sequence import Sequence
from edge.service import Service
from edge.ticket import Ticket
from edge.work import Broken, EmbedJob, Event, PromptScored, Sampled, Vectors

log = logging.getLogger("baton.engine")

R = TypeVar("R")

_READ_BYTES = 1 << 18


class Talker:
    """Serves one parent over one connected socket until it says `Shutdown` or is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._preparing = ThreadPoolExecutor(1, "prepare")
        self._service: Service | None = None
        self._changing = threading.Lock()  # a request moves between the next three, or leaves them, as one step
        self._pending: set[int] = set()  # being prepared
        self._tickets: dict[int, Ticket] = {}
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

    def ready(self, service: Service) -> None:
        """Begin to serve, now that the model is loaded. From any thread."""
        self._service = service
        self._send(m.Ready(service.card, service.scheduler.limits.slots, service.cells, service.limit, service.load_s))

    def failed(self, message: str) -> None:
        """Tell the parent that loading is pointless, and end. From any thread."""
        self._send(m.LoadFailed(message))
        self._closing = True
        self._socket.shutdown(socket.SHUT_RD)  # wakes the main thread

    def emit(self, events: list[Event]) -> None:
        """Send what a step brought. Called by the owner thread."""
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
                        deltas += [(sequence.request, delta) for delta in ticket.prompt_scored(event)]
                        self._let_go(sequence.request, ticket, sequence if ticket.is_done else None)
                case Vectors(identifier, vectors):
                    self._embedded(identifier, vectors)
                case Broken(identifier, error):
                    if identifier in self._tickets or identifier in self._embedding:
                        self._cancel(identifier)
                        self._error(identifier, error)
        self._send_deltas(deltas)

    def _let_go(self, identifier: int, ticket: Ticket, ended: Sequence | None) -> None:
        if ended is not None and self._service is not None:
            self._service.loop.finish([ended])
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
            running, waiting = self._service.loop.load()
            started = self._service.loop.figures.step_started
            step_age = now - started if started else 0.0
            gauges, counters = figures(self._service)
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

    def _start(self, identifier: int, request: GenerateRequest) -> Callable[[Prepared], None]:
        def start(prepared: Prepared) -> None:
            assert self._service is not None
            words = self._service.model.vocabulary
            ticket = Ticket(request, prepared, words.piece, words.special_piece)
            first = ticket.echo()
            if request.max_tokens == 0 and not prepared.sequences[0].all_logits:
                first += ticket.end_without_tokens()
            self._send_deltas([(identifier, delta) for delta in first])
            if not ticket.is_done:
                self._tickets[identifier] = ticket
                self._service.loop.submit(prepared.sequences)

        return start

    def _cancel(self, identifier: int) -> None:
        with self._changing:
            self._pending.discard(identifier)
            ticket = self._tickets.pop(identifier, None)
            embeds = self._embedding.pop(identifier, None) is not None
        if self._service is not None and ticket is not None:
            self._service.loop.finish(ticket.sequences)
        if self._service is not None and embeds:
            self._service.cancel_embedding(identifier)

    def _embed_inputs(self, request: EmbedRequest) -> list[list[int]]:
        assert self._service is not None
        service, inputs = self._service, []
        size, limit = service.model.embedding_size, service.embedding_limit
        if request.dimensions is not None and request.dimensions > size:
            raise Rejected(f"dimensions is {request.dimensions}, the model's vectors have {size}", param="dimensions")
        for i, prompt in enumerate(request.inputs):
            param = "input" if len(request.inputs) == 1 else f"input[{i}]"
            ids = service.preparer.tokens_of(prompt, param)
            if not ids:
                raise Rejected(f"'{param}' has no tokens", param=param)
            if len(ids) > limit:
                raise ContextOverflow(f"'{param}' has {len(ids)} tokens, at most {limit} can be embedded at once", param=param)
            inputs.append(ids)
        return inputs

    def _start_embedding(self, identifier: int, request: EmbedRequest) -> Callable[[list[list[int]]], None]:
        def start(inputs: list[list[int]]) -> None:
            assert self._service is not None
            self._embedding[identifier] = request, sum(map(len, inputs))
            self._service.embed(EmbedJob(identifier, inputs))

        return start

    def _embedded(self, identifier: int, vectors: list[bytes]) -> None:
        if entry := self._embedding.pop(identifier, None):
            request, tokens = entry
            cut = tuple(shortened(vector, request.dimensions) for vector in vectors)
            self._send(m.Embedded(identifier, Embeddings(cut, Usage(prompt_tokens=tokens))))

    def _token_list(self, request: TokenizeRequest) -> TokenList:
        assert self._service is not None
        ids = self._service.preparer.tokenize(request)
        return TokenList(ids, tuple(self._service.model.vocabulary.special_piece(i) for i in ids))

    def _text_of(self, ids: tuple[int, ...]) -> str:
        assert self._service is not None
        self._service.preparer.check_ids(ids, "tokens")
        return self._service.model.vocabulary.detokenize(ids)


def shortened(vector: bytes, dimensions: int | None) -> bytes:
    """Cut a normalised vector to its first `dimensions` numbers and normalise it again."""
    if dimensions is None:
        return vector
    head = np.frombuffer(vector, "<f4")[:dimensions]
    norm = float(np.linalg.norm(head))
    return (head / np.float32(norm) if norm > 0 else head).astype("<f4").tobytes()


def figures(service: Service) -> tuple[dict[str, float], dict[str, float]]:
    """Gauges and counters for `/metrics`. Read from another thread than writes them: each is one number, so none is torn."""
    f, scheduler = service.loop.figures, service.scheduler
    gauges = {
        "kv_cells": float(scheduler.limits.cells),
        "kv_cells_used": float(scheduler.pool.used),
        "prefix_cache_bytes": float(scheduler.cache.size),
        "prefix_cache_entries": float(len(scheduler.cache)),
    }
    counters = {
        "steps_total": float(f.steps),
        "step_tokens_total": float(f.step_tokens),
        "step_native_seconds_total": f.step_native_seconds,
        "step_host_seconds_total": f.step_host_seconds,
        "snapshot_seconds_total": service.context.snapshot_seconds if service.context else 0.0,
        "prompt_tokens_total": float(f.prompt_tokens),
        "prefix_cache_hit_tokens_total": float(f.cached_tokens),
        "decoded_tokens_total": float(f.decoded_tokens),
        "embedded_tokens_total": float(f.embedded_tokens),
        "preemptions_total": float(scheduler.preemptions),
        "refused_steps_total": float(f.refused_steps),
    }
    return gauges, counters
