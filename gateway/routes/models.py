"""GET /v1/models and GET /v1/models/{id}; an id may contain slashes."""

from typing import Any

import msgspec
from litestar import Request, get
from litestar.params import FromPath
from litestar.types import ASGIApp

from backends.types import ModelCard
from gateway.keys.permission import check_model
from gateway.response import JsonReply
from gateway.routes.dependencies import CatalogDependency
from gateway.routes.reply import identity_of
from gateway.schema.models import Model, ModelList, ModelMeta


@get("/v1/models")
async def list_models(request: Request[Any, Any, Any], catalog: CatalogDependency) -> ASGIApp:
    """List what is served to this key, also what still loads."""
    cards = await catalog.cards(identity_of(request))
    return JsonReply(msgspec.json.encode(ModelList(data=[_model(card) for card in cards])))


@get("/v1/models/{model:path}")
async def retrieve_model(request: Request[Any, Any, Any], model: FromPath[str], catalog: CatalogDependency) -> ASGIApp:
    """Describe one model."""
    name = model.removeprefix("/")
    check_model(identity_of(request), name)
    catalog.backend(name)
    card = next((card for card in await catalog.cards(identity_of(request)) if card.id == name), None)
    return JsonReply(msgspec.json.encode(_model(card or ModelCard(id=name, created=0))))


def _model(card: ModelCard) -> Model:
    meta = ModelMeta(
        capabilities=card.capabilities,
        n_vocab=card.vocab_size,
        n_params=card.parameters,
        size=card.size_bytes,
        architecture=card.architecture,
        quantization=card.quantization,
    )
    return Model(id=card.id, created=card.created, owned_by=card.owned_by, max_model_len=card.context_length, meta=meta)
