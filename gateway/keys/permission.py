"""Which models a key is meant for."""

from collections.abc import Iterable

from gateway.errors import InvalidRequest
from gateway.identity import Identity

_MAX_NAME_CHARS = 200


class ModelNotAllowed(InvalidRequest):
    """The key is good, but not for this model."""

    status = 403
    code = "model_not_allowed"


def check_model(identity: Identity, model: str) -> None:
    """Let a request pass whose key may use the model. Asked before the model is looked for: a key learns of no other models.

    Raises:
        ModelNotAllowed: it may not, whether the model exists or not.
    """
    if identity.models is not None and model not in identity.models:
        raise ModelNotAllowed(f"This API key may not use the model '{model[:_MAX_NAME_CHARS]}'.", param="model")


def visible_models(identity: Identity, models: Iterable[str]) -> list[str]:
    """The public names among `models` that a key may use, in their order: what it is shown in lists."""
    return [model for model in models if identity.may_use(model)]
