"""POST /tokenize and POST /detokenize, also below /v1: shapes of vLLM and llama-server."""

from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from gateway.disconnect import run_until_disconnect
from gateway.registry import Registry
from gateway.routes.dependencies import RegistryDependency
from gateway.routes.reply import JsonReply, model_or_only, read_body
from gateway.schema.tokenize import DetokenizeBody, TokenizeBody
from gateway.translate.body import Body
from gateway.translate.tokenize import to_request, to_response, to_text_response

_TOKENIZE = Body(TokenizeBody)
_DETOKENIZE = Body(DetokenizeBody)


@post(["/tokenize", "/v1/tokenize"], status_code=200)
async def tokenize(request: Request[Any, Any, Any], registry: RegistryDependency) -> ASGIApp:
    """Turn a text or a conversation into token ids."""
    body = await read_body(request, _TOKENIZE)
    model = await model_or_only(body.model, registry, "completion")
    asked = to_request(body, model=model)
    backend = registry.resolve(model)
    tokens = await run_until_disconnect(request.receive, backend.tokenize(asked))
    return JsonReply(to_response(tokens, body, context_length=await _context_length(registry, model)))


@post(["/detokenize", "/v1/detokenize"], status_code=200)
async def detokenize(request: Request[Any, Any, Any], registry: RegistryDependency) -> ASGIApp:
    """Turn token ids into text."""
    body = await read_body(request, _DETOKENIZE)
    model = await model_or_only(body.model, registry, "completion")
    backend = registry.resolve(model)
    return JsonReply(
        to_text_response(await run_until_disconnect(request.receive, backend.detokenize(model, tuple(body.tokens))))
    )


async def _context_length(registry: Registry, model: str) -> int | None:
    return next((card.context_length for card in await registry.cards() if card.id == model), None)
