"""GET /v1/models and GET /v1/models/{id}; an id may contain slashes."""

import msgspec
from litestar import get
from litestar.params import FromPath
from litestar.types import ASGIApp

from backends.types import ModelCard
from gateway.routes.dependencies import RegistryDependency
from gateway.routes.reply import JsonReply
from gateway.schema.models import Model, ModelList, ModelMeta


@get("/v1/models")
async def list_models(registry: RegistryDependency) -> ASGIApp:
    """List what is served, also what still loads."""
    cards = await registry.cards()
    return JsonReply(msgspec.json.encode(ModelList(data=[_model(card) for card in cards])))


@get("/v1/models/{model:path}")
async def retrieve_model(model: FromPath[str], registry: RegistryDependency) -> ASGIApp:
    """Describe one model."""
    name = model.removeprefix("/")
    registry.resolve(name)
    card = next((card for card in await registry.cards() if card.id == name), None)
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
