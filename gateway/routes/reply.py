"""What handlers that do not generate have in common: who asks, the body, the model."""

from typing import Any, TypeVar

from litestar import Request

from backends.types import Capability
from gateway.dispatch.catalog import Catalog
from gateway.errors import InvalidRequest, UnsupportedMediaType
from gateway.identity import ANONYMOUS, Identity
from gateway.keys.permission import check_model
from gateway.translate.body import Body

T = TypeVar("T")


async def read_body(request: Request[Any, Any, Any], body: Body[T]) -> T:
    """Read and decode the body as JSON, whatever content type it claims (curl's `-d` claims a form).

    Raises:
        UnsupportedMediaType: it is compressed.
        InvalidRequest: it is not what the endpoint takes.
    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise UnsupportedMediaType(f"The content encoding '{encoding[:40]}' is not supported: send plain JSON.")
    return body.decode(await request.body())


def identity_of(request: Request[Any, Any, Any]) -> Identity:
    """Whose request it is."""
    identity: Identity = request.scope["state"].get("identity", ANONYMOUS)
    return identity


async def settle_model(model: str | None, catalog: Catalog, capability: Capability, identity: Identity) -> str:
    """The model that was asked for, or the only one that can do it.

    Raises:
        InvalidRequest: none was named and there is a choice, or none that can.
        ModelNotAllowed: the key may not use it.
    """
    name = model if model is not None else await catalog.only(capability, identity)
    if name is None:
        text = "Missing required parameter: 'model' (it may only be left out when exactly one fitting model is served)."
        raise InvalidRequest(text, param="model", code="missing_required_parameter")
    check_model(identity, name)
    return name
