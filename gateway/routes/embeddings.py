"""POST /v1/embeddings."""

from typing import Any
from uuid import uuid4

from litestar import Request, post
from litestar.types import ASGIApp

from gateway.routes.dependencies import RegistryDependency, TelemetryDependency
from gateway.routes.reply import JsonReply, model_or_only, observed, read_body, tenant_of
from gateway.schema.embeddings import EmbeddingRequest
from gateway.schema.parameters import EMBEDDINGS
from gateway.telemetry.observation import Observation
from gateway.translate.body import Body
from gateway.translate.embeddings import to_request, to_response

_BODY = Body(EmbeddingRequest, EMBEDDINGS)


@post("/v1/embeddings", status_code=200)
async def create_embedding(
    request: Request[Any, Any, Any], registry: RegistryDependency, telemetry: TelemetryDependency
) -> ASGIApp:
    """Turn texts or token ids into vectors."""
    body = await read_body(request, _BODY)
    model = await model_or_only(body.model, registry, "embedding")
    asked = to_request(body, request_id=f"embd-{uuid4().hex}", model=model, tenant=tenant_of(request))
    backend = registry.resolve(model)

    async def work(observation: Observation) -> bytes:
        embeddings = await backend.embed(asked)
        observation.finish(embeddings.usage)
        return to_response(embeddings, model=model, as_base64=body.encoding_format == "base64")

    def begin() -> Observation:
        return telemetry.begin("embeddings", model, stream=False)

    return JsonReply(await observed(request, begin, work, prompt_param="input"))
