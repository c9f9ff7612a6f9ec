"""POST /v1/responses, and what is kept of it: GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items.

    body > history > call > limits > queue > router > backend > draft > keep > bytes

A body is translated for every backend: earlier turns are kept here, and an upstream would not know them. History is read
before anything waits in a queue; what is kept is written before the last event leaves, so that a client may continue at once.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Request, asgi, delete, get
from litestar.handlers import ASGIRouteHandler, BaseRouteHandler
from litestar.params import FromPath
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.disconnect import until_gone
from gateway.dispatch.answer import Answer
from gateway.dispatch.dispatch import Dispatch
from gateway.dispatch.opened import Opened
from gateway.errors import InvalidRequest
from gateway.response import JsonReply, trail_headers
from gateway.routes.asked import demand_post, new_call, read_whole
from gateway.routes.reply import identity_of, settle_model
from gateway.routes.responses_asked import AskedResponse
from gateway.routes.responses_state import ResponsesState, get_response, input_items, unknown_response
from gateway.routing.deployment import Deployment
from gateway.schema.responses import ResponseRequest
from gateway.schema.responses_answer import Deleted
from gateway.schema.responses_parameters import RESPONSES
from gateway.sse import EventStream
from gateway.translate.body import Body
from gateway.translate.responses import check
from gateway.translate.responses_page import page

_PATH = "/v1/responses"
_BODY = Body(ResponseRequest, RESPONSES)


def responses_routes(
    current: Callable[[], Dispatch], state: ResponsesState, ping_interval_s: float
) -> tuple[BaseRouteHandler, ...]:
    """Build the handlers.

    Args:
        current: gives the dispatch of the moment, which a request keeps to its end.
        ping_interval_s: the silence after which a stream sends a comment; 0 sends none.
    """

    @get(_PATH + "/{response_id:str}")
    async def retrieve(request: Request[Any, Any, Any], response_id: FromPath[str]) -> ASGIApp:
        """Give a stored response again."""
        if request.query_params.get("stream", "false").lower() not in ("false", "0"):
            text = "'stream' is not supported here: a stored response is given whole."
            raise InvalidRequest(text, param="stream", code="unsupported_value")
        return JsonReply((await get_response(state, tenant_of(request), response_id)).body)

    @delete(_PATH + "/{response_id:str}", status_code=200)
    async def remove(request: Request[Any, Any, Any], response_id: FromPath[str]) -> ASGIApp:
        """Forget a stored response."""
        stored = await get_response(state, tenant_of(request), response_id)
        if not await state.responses.delete(tenant_of(request), stored.id):
            raise unknown_response(response_id)
        return JsonReply(msgspec.json.encode(Deleted(stored.id, "response")))

    @get(_PATH + "/{response_id:str}/input_items")
    async def list_input_items(request: Request[Any, Any, Any], response_id: FromPath[str]) -> ASGIApp:
        """Give what a stored response was an answer to."""
        stored = await get_response(state, tenant_of(request), response_id)
        return JsonReply(page(input_items(stored), request.query_params))

    return _creator(current, state, ping_interval_s), retrieve, remove, list_input_items


def _creator(current: Callable[[], Dispatch], state: ResponsesState, ping_interval_s: float) -> ASGIRouteHandler:
    @asgi(_PATH, copy_scope=False)
    async def create(scope: Scope, receive: Receive, send: Send) -> None:
        demand_post(scope)
        body = _BODY.decode(await read_whole(receive))
        check(body)
        call, dispatch = new_call(scope, "responses", body.model or ""), current()
        call.model = await settle_model(body.model, dispatch.catalog, "chat", call.identity)
        asked = await AskedResponse.read(body, call, state, by_prefix=dispatch.catalog.traits(call.model).by_prefix)

        async def start(deployment: Deployment) -> Answer:
            return await asked.open(deployment, stream=bool(body.stream))

        async def begin() -> Opened:
            opened = await dispatch.open(call, start, stream=bool(body.stream), prompt_param="input")
            await asked.choose(opened.source)
            return opened

        if body.stream:
            stream = EventStream(begin, call, asked, ping_interval_s=ping_interval_s, prompt_param="input")
            return await stream(scope, receive, send)
        opened = await until_gone(scope, receive, begin())
        headers = [*opened.source.headers, *call.headers, *trail_headers(call)]
        await JsonReply(opened.source.first, headers)(scope, receive, send)

    return create


def tenant_of(request: Request[Any, Any, Any]) -> str:
    """Whose responses and conversations a request may see."""
    return identity_of(request).tenant
