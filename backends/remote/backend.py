"""A model on another server with an OpenAI-compatible API: vLLM, SGLang, TGI, llama-server, Ollama, OpenAI, another Baton.

    forward   the client's bytes go on, the answer's bytes come back (backends.remote.forward)
    generate  our vocabulary to the API's and back (wire_request, deltas): for whoever needs the deltas

Closing an iterator closes the connection, which every known server takes as the cancellation.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import httpx

from backends.errors import BackendError, Failed, ModelNotFound, Rejected, Unavailable, Unsupported
from backends.forwarding import Forwarded, ForwardRequest, Headers
from backends.remote.config import RemoteConfig
from backends.remote.credentials import read_api_key, tls_context
from backends.remote.deltas import DeltaReader
from backends.remote.forward import Forwarding, refuse_other_than_events
from backends.remote.json_fields import encode
from backends.remote.model_list import UpstreamModel, read_model
from backends.remote.sse import EventSplitter
from backends.remote.transport.http import HttpTransport
from backends.remote.transport.limits import Limits
from backends.remote.upstream import Exchange, Upstream, closed
from backends.remote.wire_answers import read_embeddings, read_text, read_tokens
from backends.remote.wire_request import embed_fields, generate_fields, path_of, tokenize_fields
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

logger = logging.getLogger(__name__)

CHECK_TIMEOUT_S = 5.0
_NEEDS = {"/chat/completions": "chat", "/completions": "completion", "/embeddings": "embedding", "/rerank": "rerank"}


class RemoteBackend:
    """Serves one upstream model under one public name.

    Args:
        transport: owned; tests bring their own.

    Raises:
        ValueError: the API key or a TLS file cannot be read.
    """

    def __init__(self, name: str, config: RemoteConfig, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._name = name
        self._config = config
        self._model = config.model or name
        self._created = int(time.time())
        self._known = UpstreamModel()
        self._trouble = ""
        self._discovery: asyncio.Task[None] | None = None
        self._upstream = Upstream(config, transport or _transport(config), _headers(config))
        self._forwarding = Forwarding(config, self._upstream, self._model)

    async def start(self) -> None:
        """Begin to ask the upstream about the model. Requests need not wait for that."""
        self._discovery = asyncio.create_task(self._discover())

    async def check(self) -> None:
        """See whether the upstream answers and takes our key. Returns at once with the loop's next turn, or within 5 s.

        Raises:
            BackendError: it does not, and why.
        """
        try:
            body = await self._upstream.fetch("GET", "/models", b"", [], seconds=CHECK_TIMEOUT_S)
        except (Rejected, ModelNotFound):
            body = b""
        except BackendError as error:
            # Some servers have no such list; whoever says so is alive.
            if error.code not in ("upstream_not_found", "upstream_overloaded"):
                self._trouble = error.message
                raise
            body = b""
        self._trouble = ""
        if body:
            with suppress(Failed):
                self._known = read_model(body, self._model)

    async def models(self) -> tuple[ModelCard, ...]:
        """The one model, with what the configuration or the upstream says about it."""
        known = self._known
        return (
            ModelCard(
                id=self._name,
                created=self._created,
                capabilities=self._config.capabilities,
                context_length=self._config.context_length or known.context_length or None,
                vocab_size=known.vocab_size or None,
                parameters=known.parameters or None,
                size_bytes=known.size_bytes or None,
                architecture=known.architecture or None,
                quantization=known.quantization or None,
            ),
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta]:
        """Answer one request; see `Backend.generate`. Without a usage from the upstream, tokens are counted by their chunks."""
        self._check(request.model)
        fields = generate_fields(
            request,
            self._model,
            include_usage=self._config.include_usage,
            explicit_continue=self._known.explicit_continue,
        )
        for name in self._config.strip_params:
            fields.pop(name, None)
        seconds = self._config.first_token_timeout_s
        late = f"The upstream server gave no output within {seconds:g} s."
        headers = [(b"x-request-id", request.id.encode())]
        try:
            exchange = await self._upstream.send("POST", path_of(request), encode(fields), headers, seconds=seconds, late=late)
            try:
                async with aclosing(self._read(exchange, DeltaReader(request))) as deltas:
                    async for delta in deltas:
                        yield delta
            finally:
                await exchange.aclose()
        except BackendError as error:
            self._note(error)
            raise
        self._trouble = ""

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Turn texts into vectors; see `Backend.embed`."""
        self._check(request.model)
        if "embedding" not in self._config.capabilities:
            raise Unsupported(f"The model '{self._name}' has no embeddings.", param="model")
        body = await self._ask("/embeddings", encode(embed_fields(request, self._model)), request.id)
        return read_embeddings(body, len(request.inputs))

    async def tokenize(self, request: TokenizeRequest) -> TokenList:
        """Token ids by the upstream's tokenizer; `Unsupported` where it does not offer one."""
        self._check(request.model)
        fields = tokenize_fields(request, self._model, explicit_continue=self._known.explicit_continue)
        return read_tokens(await self._ask_tokenizer("/tokenize", encode(fields)))

    async def detokenize(self, model: str, ids: tuple[int, ...]) -> str:
        """The text of token ids; `Unsupported` where the upstream has no tokenizer."""
        self._check(model)
        return read_text(await self._ask_tokenizer("/detokenize", encode({"model": self._model, "tokens": ids})))

    async def forward(self, request: ForwardRequest) -> Forwarded:
        """Pass a request on; see `Forwarder.forward`."""
        needed = _NEEDS.get(request.path)
        if needed is not None and needed not in self._config.capabilities:
            # Asked all the same, the upstream would answer 404, which counts against it.
            raise Unsupported(f"The model '{request.public_model[:200]}' has no capability '{needed}'.", param="model")
        try:
            forwarded = await self._forwarding.forward(request)
        except BackendError as error:
            self._note(error)
            raise
        self._trouble = ""
        return forwarded

    async def health(self) -> Health:
        """`degraded` after a request or a check failed, until one succeeds. Requests without an answer yet count as waiting."""
        upstream = self._upstream
        if upstream.closed:
            return Health(state="stopped")
        return Health(
            state="degraded" if self._trouble else "ready",
            detail=self._trouble,
            running=upstream.running,
            waiting=upstream.waiting,
            slots=self._config.max_connections,
        )

    async def close(self) -> None:
        """End everything that runs, and close the connections."""
        if self._discovery is not None:
            self._discovery.cancel()
        await self._upstream.aclose()

    async def _read(self, exchange: Exchange, reader: DeltaReader) -> AsyncGenerator[Delta]:
        await refuse_other_than_events(exchange)
        between_s = self._config.between_tokens_timeout_s
        late = f"The upstream server gave no further output within {between_s:g} s."
        events = EventSplitter(self._config.max_response_bytes)
        at_end = False
        while not reader.ended and not at_end:
            piece = await exchange.read()
            at_end = not piece
            for event in events.push(piece) if piece else events.finish():
                for delta in reader.read(event.data):
                    exchange.limit(between_s, late)
                    yield delta
                if reader.ended:
                    break
        if reader.ended:
            await exchange.drain()
        for delta in reader.close(properly=reader.ended):
            yield delta

    async def _ask(self, path: str, body: bytes, request_id: str) -> bytes:
        headers = [(b"x-request-id", request_id.encode())]
        try:
            answer = await self._upstream.fetch("POST", path, body, headers, seconds=self._config.total_timeout_s)
        except BackendError as error:
            self._note(error)
            raise
        self._trouble = ""
        return answer

    async def _ask_tokenizer(self, path: str, body: bytes) -> bytes:
        url = self._config.root_url + path
        try:
            return await self._upstream.fetch("POST", url, body, [], seconds=self._config.total_timeout_s)
        except Unavailable as error:
            if error.code == "upstream_not_found":
                text = f"The server behind the model '{self._name}' offers no tokenizer."
                raise Unsupported(text, param="model") from None
            raise

    async def _discover(self) -> None:
        try:
            await self.check()
        except BackendError as error:
            logger.warning("model %s: %s", self._name, error.message)

    def _check(self, model: str) -> None:
        if self._upstream.closed:
            raise closed()
        if model != self._name:
            raise ModelNotFound(f"The model '{model[:200]}' is not served here.", param="model")

    def _note(self, error: BackendError) -> None:
        """Remember for `health` what is the upstream's fault."""
        if isinstance(error, Failed | Unavailable):
            self._trouble = error.message


def _headers(config: RemoteConfig) -> Headers:
    headers: dict[bytes, bytes] = {
        b"content-type": b"application/json",
        b"accept": b"application/json, text/event-stream",
        b"accept-encoding": b"identity",
        b"user-agent": b"baton",
    }
    key = read_api_key(config)
    if key:
        headers[b"authorization"] = b"Bearer " + key.encode("ascii")
    headers |= {name.lower().encode("ascii"): value.encode("latin-1") for name, value in config.headers.items()}
    return list(headers.items())


def _transport(config: RemoteConfig) -> HttpTransport:
    limits = Limits(
        max_connections=config.max_connections,
        max_connections_per_origin=config.max_connections,
        max_idle=config.max_connections,
    )
    return HttpTransport(
        limits=limits,
        ssl_context=tls_context(config),
        connect_timeout_s=config.connect_timeout_s,
        keep_alive_s=config.keep_alive_s,
    )
