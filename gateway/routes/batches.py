"""POST and GET /v1/batches, GET /v1/batches/{id}, POST /v1/batches/{id}/cancel."""

from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.batches.batch import describe
from gateway.batches.batch_store import BatchStore
from gateway.batches.errors import telling
from gateway.batches.paging import read_page
from gateway.response import JsonReply
from gateway.routes.reply import identity_of, read_body
from gateway.schema.batches import BatchPage, BatchRequest
from gateway.translate.body import Body

_PATH = "/v1/batches"
_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100
_BODY = Body(BatchRequest)

_encode = msgspec.json.Encoder().encode


def batch_routes(store: BatchStore) -> tuple[BaseRouteHandler, ...]:
    """Build the handlers. Nobody sees the batches of another tenant."""

    @post(_PATH, status_code=200)
    async def create(request: Request[Any, Any, Any]) -> ASGIApp:
        """Make a batch of an uploaded file."""
        body = await read_body(request, _BODY)
        with telling():
            return JsonReply(_encode(describe(await store.create(identity_of(request), body))))

    @get(_PATH)
    async def list_batches(request: Request[Any, Any, Any]) -> ASGIApp:
        """Show batches, newest first."""
        page = read_page(request.query_params, limit=_DEFAULT_LIMIT, max_limit=_MAX_LIMIT)
        with telling():
            entries, has_more = await store.list(identity_of(request).tenant, page)
        first, last = (entries[0].id, entries[-1].id) if entries else (None, None)
        data = [describe(batch) for batch in entries]
        return JsonReply(_encode(BatchPage(data=data, first_id=first, last_id=last, has_more=has_more)))

    @get(_PATH + "/{batch_id:str}")
    async def retrieve(request: Request[Any, Any, Any], batch_id: FromPath[str]) -> ASGIApp:
        """Show a batch."""
        with telling():
            return JsonReply(_encode(describe(await store.get(identity_of(request).tenant, batch_id))))

    @post(_PATH + "/{batch_id:str}/cancel", status_code=200)
    async def cancel(request: Request[Any, Any, Any], batch_id: FromPath[str]) -> ASGIApp:
        """Ask for an early end."""
        with telling():
            return JsonReply(_encode(describe(await store.cancel(identity_of(request).tenant, batch_id))))

    return create, list_batches, retrieve, cancel
