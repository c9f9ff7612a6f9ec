"""The endpoints that generate: bytes in, and an answer from whichever deployment is chosen.

    head > call > limits > queue > router > forward the bytes, or answer here > bytes

These are plain ASGI handlers. The framework's own handlers cost 55 us more per request, a quarter of what a forwarded request
takes in all (measured, see NOTES.md).
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol, cast

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from backends.forwarding import ForwardRequest
from backends.protocol import Forwarder
from backends.types import Capability
from gateway.disconnect import until_gone
from gateway.dispatch.answer import Answer, Ending, ForwardedAnswer
from gateway.dispatch.dispatch import Dispatch
from gateway.dispatch.opened import Opened
from gateway.response import BytesReply, trail_headers
from gateway.routes.asked import Asked, demand_post, read_whole
from gateway.routes.memory import Memories, Memory, recall
from gateway.routes.reply import settle_model
from gateway.routing.deployment import Deployment
from gateway.sse import EventStream
from gateway.translate.head import model_span, prefix_hashes, with_model_first


class Here(Protocol):
    """A request in the vocabulary, for the deployments that are not forwarded to."""

    async def open(self, deployment: Deployment) -> Answer:
        """Start to answer."""
        ...


class Endpoint(NamedTuple):
    """One API over all backends.

    Attributes:
        name: in metrics.
        path: of the gateway; an upstream has it without `/v1`.
        capability: what a model must have, where the client names none.
        prompt_param: the field to blame for an overflowing context.
        ending: how its streams end.
        here: decodes the whole body; raises InvalidRequest.
        forwards: whether an upstream understands the body as it is.
    """

    name: str
    path: str
    capability: Capability
    prompt_param: str
    ending: Ending
    here: Callable[[Asked], Here]
    forwards: bool = True


def door(endpoint: Endpoint, current: Callable[[], Dispatch], memories: Memories, ping_interval_s: float) -> ASGIRouteHandler:
    """Build the handler of an endpoint. `current` gives the dispatch of the moment, which a request keeps to its end."""

    @asgi(endpoint.path, copy_scope=False)
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        demand_post(scope)
        asked, dispatch = Asked(scope, endpoint.name, await read_whole(receive)), current()
        call = asked.call
        call.model = await settle_model(asked.head.model, dispatch.catalog, endpoint.capability, call.identity)
        memory = await recall(asked, endpoint.name, memories)
        if memory is None:
            return await answer(dispatch, asked, None, scope, receive, send)
        with memory:
            if memory.hit is not None:
                replayed = await memory.replay(memory.hit)
                return await replayed(scope, receive, send)
            await answer(dispatch, asked, memory, scope, receive, send)

    async def answer(
        dispatch: Dispatch, asked: Asked, memory: Memory | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        opener, call = _Opener(endpoint, asked, memory), asked.call
        _prepare(opener, asked, endpoint, dispatch)

        async def begin() -> Opened:
            return await dispatch.open(call, opener, stream=bool(asked.head.stream), prompt_param=endpoint.prompt_param)

        if asked.head.stream:
            stream = EventStream(
                begin, call, endpoint.ending, ping_interval_s=ping_interval_s, prompt_param=endpoint.prompt_param
            )
            return await stream(scope, receive, send)
        opened = await until_gone(scope, receive, begin())
        headers = [*opened.source.headers, *call.headers, *trail_headers(call)]
        await BytesReply(opened.source.first, headers)(scope, receive, send)

    return handle


def _prepare(opener: "_Opener", asked: Asked, endpoint: Endpoint, dispatch: Dispatch) -> None:
    """Refuse what can be refused before anything waits for it, and read what routing wants to know."""
    call = asked.call
    traits = dispatch.catalog.traits(call.model)
    if traits.has_local or not endpoint.forwards:
        opener.prepare()
    if traits.by_prefix:
        call.prefix = prefix_hashes(asked.head.content)


class _Opener:
    """Starts a request on a deployment, in whichever way its backend takes it."""

    __slots__ = ("_asked", "_endpoint", "_forward", "_here", "_memory")

    def __init__(self, endpoint: Endpoint, asked: Asked, memory: Memory | None) -> None:
        self._endpoint = endpoint
        self._memory = memory
        self._asked = asked
        self._here: Here | None = None
        self._forward: ForwardRequest | None = None

    def prepare(self) -> Here:
        """Decode the body for a backend that is not forwarded to. Raises InvalidRequest."""
        if self._here is None:
            self._here = self._endpoint.here(self._asked)
        return self._here

    async def __call__(self, deployment: Deployment) -> Answer:
        """Start to answer."""
        answer = await self._open(deployment)
        return answer if self._memory is None else await self._memory.listen(answer)

    async def _open(self, deployment: Deployment) -> Answer:
        backend = deployment.backend
        if not (self._endpoint.forwards and _forwards(type(backend))):
            return await self.prepare().open(deployment)
        if self._forward is None:
            self._forward = self._to_forward()
        return ForwardedAnswer(await cast(Forwarder, backend).forward(self._forward))

    def _to_forward(self) -> ForwardRequest:
        asked = self._asked
        body, model = asked.body, asked.call.model
        span = model_span(body, model) if asked.head.model else None
        if span is None:
            body, span = with_model_first(body, model)
        return ForwardRequest(
            path=self._endpoint.path.removeprefix("/v1"),
            body=body,
            model_span=span,
            stream=bool(asked.head.stream),
            wants_usage=asked.head.wants_usage,
            headers=asked.headers,
            request_id=asked.call.id,
            public_model=model,
        )


@cache
def _forwards(backend: type) -> bool:
    return issubclass(backend, Forwarder)
