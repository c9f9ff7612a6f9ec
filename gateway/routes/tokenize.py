"""POST /tokenize and POST /detokenize, also below /v1: shapes of vLLM and llama-server."""

from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from gateway.disconnect import until_gone
from gateway.response import JsonReply
from gateway.routes.dependencies import CatalogDependency
from gateway.routes.reply import identity_of, read_body, settle_model
from gateway.schema.tokenize import DetokenizeBody, TokenizeBody
from gateway.translate.body import Body
from gateway.translate.tokenize import to_request, to_response, to_text_response

_TOKENIZE = Body(TokenizeBody)
_DETOKENIZE = Body(DetokenizeBody)


@post(["/tokenize", "/v1/tokenize"], status_code=200)
async def tokenize(request: Request[Any, Any, Any], catalog: CatalogDependency) -> ASGIApp:
    """Turn a text or a conversation into token ids."""
    body = await read_body(request, _TOKENIZE)
    model = await settle_model(body.model, catalog, "completion", identity_of(request))
    name, backend = catalog.backend(model)
    tokens = await until_gone(request.scope, request.receive, backend.tokenize(to_request(body, model=name)))
    lengths = {card.id: card.context_length for card in await backend.models()}
    return JsonReply(to_response(tokens, body, context_length=lengths.get(name)))


@post(["/detokenize", "/v1/detokenize"], status_code=200)
async def detokenize(request: Request[Any, Any, Any], catalog: CatalogDependency) -> ASGIApp:
    """Turn token ids into text."""
    body = await read_body(request, _DETOKENIZE)
    model = await settle_model(body.model, catalog, "completion", identity_of(request))
    name, backend = catalog.backend(model)
    text = await until_gone(request.scope, request.receive, backend.detokenize(name, tuple(body.tokens)))
    return JsonReply(to_text_response(text))
