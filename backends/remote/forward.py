"""Passes a client's request on and the answer back, as bytes.

Nothing of a stream is shown before its first output, so that an upstream which breaks before it can be replaced without the
client noticing. Afterwards it is too late for that, and errors become events.
"""

from collections.abc import Iterable

import msgspec

from backends.errors import BackendError
from backends.forwarding import Forwarded, ForwardRequest, Headers
from backends.remote.chat_events import ChatEvents
from backends.remote.config import RemoteConfig
from backends.remote.errors import empty_answer, from_event, protocol_error
from backends.remote.json_fields import dicts, encode, read_object
from backends.remote.meaning import read_finish, read_usage
from backends.remote.request_body import RequestBody
from backends.remote.responses_events import ResponsesEvents
from backends.remote.stream_rewriter import ModelName, StreamRewriter
from backends.remote.upstream import Exchange, Upstream
from backends.types import FinishReason, Usage

PATHS = frozenset({"/chat/completions", "/completions", "/embeddings", "/responses", "/rerank"})

_DROPPED = frozenset(
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade content-length"
    b" content-encoding set-cookie server date via alt-svc strict-transport-security www-authenticate location"
    b" cache-control x-accel-buffering openai-version openai-organization openai-project openai-processing-ms".split()
)
_DROPPED_PREFIXES = (b"x-ratelimit-", b"x-baton-", b"access-control-", b"proxy-")


class Forwarding:
    """Forwards the requests for one model.

    Args:
        model: its name upstream.
    """

    def __init__(self, config: RemoteConfig, upstream: Upstream, model: str) -> None:
        self._config = config
        self._upstream = upstream
        self._body = RequestBody(model, include_usage=config.include_usage, strip=config.strip_params)
        self._passed_on = frozenset(name.lower().encode() for name in config.forward_headers)

    async def forward(self, request: ForwardRequest) -> Forwarded:
        """See `Forwarder.forward`."""
        config = self._config
        seconds = config.first_token_timeout_s if request.stream else config.total_timeout_s
        late = f"The upstream server gave no output within {seconds:g} s."
        headers = [(b"x-request-id", request.request_id.encode())]
        if self._passed_on:
            headers += [header for header in request.headers if header[0] in self._passed_on]
        body = self._body.rewrite(request)
        exchange = await self._upstream.send("POST", request.path, body, headers, seconds=seconds, late=late)
        try:
            if not request.stream:
                return await _read_json(exchange, request, config)
            stream = _ForwardedStream(exchange, _rewriter(request, config), config)
            await stream.begin()
            return stream
        except BaseException:
            await exchange.aclose()
            raise


def _rewriter(request: ForwardRequest, config: RemoteConfig) -> StreamRewriter:
    if request.path == "/responses":
        return ResponsesEvents(request.public_model, config.max_response_bytes)
    return ChatEvents(request.public_model, config.max_response_bytes, keep_usage=request.wants_usage)


class _ForwardedStream:
    """A stream of events; see `Forwarded`."""

    def __init__(self, exchange: Exchange, events: StreamRewriter, config: RemoteConfig) -> None:
        self.status = exchange.status
        self.headers = filter_headers(exchange.headers)
        self.stream = True
        self.first = b""
        self._exchange = exchange
        self._events = events
        self._max_bytes = config.max_response_bytes
        self._between_s = config.between_tokens_timeout_s
        self._late = f"The upstream server gave no further output within {self._between_s:g} s."
        self._closing_sent = False

    @property
    def usage(self) -> Usage | None:
        return self._events.usage

    @property
    def finish(self) -> FinishReason | None:
        return self._events.finish

    @property
    def output_events(self) -> int:
        return self._events.output_events

    @property
    def saw_output(self) -> bool:
        return self._events.saw_output

    @property
    def error(self) -> BackendError | None:
        return self._events.error

    async def begin(self) -> None:
        """Read up to the first output. Raises what the upstream says instead, or that it says nothing."""
        await refuse_other_than_events(self._exchange)
        held: list[bytes] = []
        size = 0
        while not self._events.saw_output:
            if self._events.ended:
                raise self._events.error or empty_answer()
            piece = await self._exchange.read()
            shown = self._events.push(piece) if piece else self._events.finish_input()
            held.append(shown)
            size += len(shown)
            if size > self._max_bytes:
                raise protocol_error(f"The upstream server sent {size} bytes without any output.")
        self._exchange.limit(self._between_s, self._late)
        if self._events.ended:
            held.append(self._close_stream())
        self.first = b"".join(held)

    async def next(self) -> bytes:
        """See `Forwarded.next`."""
        if self._closing_sent:
            if self._events.error is None:
                await self._exchange.drain()
            await self.aclose()
            return b""
        events = self._events
        while True:
            shown = await self._advance()
            if events.ended:
                return shown + self._close_stream() or await self.next()
            if shown:
                # Comments are no progress: a server may well send them while its engine hangs.
                self._exchange.limit(self._between_s, self._late)
                return shown

    async def aclose(self) -> None:
        """Release the connection."""
        await self._exchange.aclose()

    async def _advance(self) -> bytes:
        try:
            piece = await self._exchange.read()
        except BackendError as error:
            self._events.fail(error)
            return b""
        return self._events.push(piece) if piece else self._events.finish_input()

    def _close_stream(self) -> bytes:
        self._closing_sent = True
        return self._events.closing()


async def refuse_other_than_events(exchange: Exchange) -> None:
    """Raise what a success means that is no stream: an error that came with status 200, or a server that knows no streams."""
    kind = exchange.content_type
    if kind != "application/json" and kind != "text/html":
        return
    body = await exchange.read_all(1 << 16)
    if kind == "application/json":
        error = read_object(body, "answer").get("error")
        if error:
            raise from_event(error)
    raise protocol_error(f"The upstream server answered a request for a stream with {kind}.")


class _ForwardedJson(msgspec.Struct, kw_only=True):
    """A whole answer; see `Forwarded`."""

    status: int
    headers: Headers
    first: bytes
    usage: Usage | None
    finish: FinishReason | None
    stream: bool = False
    output_events: int = 1
    saw_output: bool = True
    error: BackendError | None = None

    async def next(self) -> bytes:
        """Nothing comes after the whole."""
        return b""

    async def aclose(self) -> None:
        """The connection is free already."""


class _Answer(msgspec.Struct):
    """What is read of an answer; vectors and texts are skipped without being built."""

    usage: object = None
    error: object = None
    choices: object = None
    status: object = None


class _Choice(msgspec.Struct):
    finish_reason: object = None


_answers = msgspec.json.Decoder(_Answer)


async def _read_json(exchange: Exchange, request: ForwardRequest, config: RemoteConfig) -> Forwarded:
    body = await exchange.read_all(config.max_response_bytes)
    await exchange.aclose()
    try:
        answer = _answers.decode(body)
    except (ValueError, RecursionError):
        kind = exchange.content_type[:80] or "an unknown type"
        raise protocol_error(f"The upstream server answered {exchange.status} with {kind} that is no JSON object.") from None
    if answer.error and not answer.choices:
        raise from_event(answer.error)
    choices = dicts(answer.choices)
    if request.path in ("/chat/completions", "/completions"):
        if not choices:
            raise empty_answer()
        if any(choice.get("finish_reason") == "" for choice in choices):
            body = _mend_finish(body)
    finish = next((finish for choice in choices if (finish := read_finish(choice.get("finish_reason")))), None)
    return _ForwardedJson(
        status=exchange.status,
        headers=filter_headers(exchange.headers),
        first=ModelName(request.public_model).put_once(body),
        usage=read_usage(answer.usage),
        finish=finish,
    )


def _mend_finish(body: bytes) -> bytes:
    answer = read_object(body, "answer")
    for choice in dicts(answer.get("choices")):
        choice["finish_reason"] = choice.get("finish_reason") or None
    return encode(answer)


def filter_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What of an answer's head the client may see.

    Rate limits are left out because they are those of this gateway's key, CORS because it is decided here, and what another
    Baton says about its own deployments because this gateway says it about ours. The upstream's request id becomes
    `x-upstream-request-id`, since the client's `x-request-id` is that of this gateway.
    """
    kept: Headers = []
    for raw_name, value in headers:
        name = raw_name.lower()
        if name == b"x-request-id":
            kept.append((b"x-upstream-request-id", value))
        elif name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES):
            kept.append((name, value))
    return kept
