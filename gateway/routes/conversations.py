"""POST /v1/conversations, GET and DELETE /v1/conversations/{id}, GET and POST /v1/conversations/{id}/items."""

from typing import Any

import msgspec
from litestar import Request, delete, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.response import JsonReply
from gateway.routes.responses import tenant_of
from gateway.routes.responses_state import (
    ResponsesState,
    create_conversation,
    describe,
    get_conversation,
    items_of,
    unknown_conversation,
)
from gateway.schema.responses import ConversationRequest, ItemsRequest
from gateway.schema.responses_answer import Deleted
from gateway.translate.body import Body
from gateway.translate.responses_items import encode_items, to_items
from gateway.translate.responses_page import MAX_LIMIT, page

_PATH = "/v1/conversations"
_BODY = Body(ConversationRequest)
_ITEMS = Body(ItemsRequest)


def conversation_routes(state: ResponsesState) -> tuple[BaseRouteHandler, ...]:
    """Build the handlers."""

    @post(_PATH, status_code=200)
    async def create(request: Request[Any, Any, Any]) -> ASGIApp:
        """Begin a conversation, with items or without."""
        body = _BODY.decode(await request.body() or b"{}")
        tenant = tenant_of(request)
        id = await create_conversation(state, tenant, to_items(body.items, "items"), body.metadata or {})
        return JsonReply(msgspec.json.encode(describe(await get_conversation(state, tenant, id))))

    @get(_PATH + "/{conversation_id:str}")
    async def retrieve(request: Request[Any, Any, Any], conversation_id: FromPath[str]) -> ASGIApp:
        """Describe a conversation."""
        return JsonReply(msgspec.json.encode(describe(await get_conversation(state, tenant_of(request), conversation_id))))

    @delete(_PATH + "/{conversation_id:str}", status_code=200)
    async def remove(request: Request[Any, Any, Any], conversation_id: FromPath[str]) -> ASGIApp:
        """Forget a conversation and its items; stored responses stay."""
        found = await get_conversation(state, tenant_of(request), conversation_id)
        if not await state.conversations.delete(tenant_of(request), found.id):
            raise unknown_conversation(conversation_id)
        return JsonReply(msgspec.json.encode(Deleted(found.id, "conversation.deleted")))

    @get(_PATH + "/{conversation_id:str}/items")
    async def list_items(request: Request[Any, Any, Any], conversation_id: FromPath[str]) -> ASGIApp:
        """Give the items of a conversation."""
        found = await get_conversation(state, tenant_of(request), conversation_id)
        return JsonReply(page(items_of(found), request.query_params))

    @post(_PATH + "/{conversation_id:str}/items", status_code=200)
    async def add_items(request: Request[Any, Any, Any], conversation_id: FromPath[str]) -> ASGIApp:
        """Append items, all or none."""
        items = encode_items(to_items(_ITEMS.decode(await request.body()).items, "items"))
        found = await get_conversation(state, tenant_of(request), conversation_id)
        await state.conversations.append(tenant_of(request), found.id, items)
        return JsonReply(page(items, {"order": "asc", "limit": str(MAX_LIMIT)}))

    return create, retrieve, remove, list_items, add_items
