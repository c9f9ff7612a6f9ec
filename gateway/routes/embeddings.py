"""POST /v1/embeddings."""

from uuid import uuid4

import msgspec

from gateway.dispatch.answer import Answer, WholeAnswer
from gateway.routes.asked import Asked
from gateway.routes.door import Endpoint
from gateway.routing.deployment import Deployment
from gateway.schema.embeddings import EmbeddingRequest
from gateway.schema.parameters import EMBEDDINGS
from gateway.translate.body import Body
from gateway.translate.embeddings import to_request, to_response
from gateway.translate.ending import OpenAiEnding

_BODY = Body(EmbeddingRequest, EMBEDDINGS)


class _EmbeddingHere:
    """Texts or token ids that are turned into vectors here."""

    def __init__(self, asked: Asked) -> None:
        call = asked.call
        self._body = _BODY.decode(asked.body)
        self._model = call.model
        self._request = to_request(self._body, request_id=f"embd-{uuid4().hex}", model=call.model, tenant=call.identity.tenant)

    async def open(self, deployment: Deployment) -> Answer:
        """Compute them."""
        embeddings = await deployment.backend.embed(msgspec.structs.replace(self._request, model=deployment.name))
        as_base64 = self._body.encoding_format == "base64"
        return WholeAnswer(to_response(embeddings, model=self._model, as_base64=as_base64), embeddings.usage)


EMBEDDINGS_ENDPOINT = Endpoint("embeddings", "/v1/embeddings", "embedding", "input", OpenAiEnding(), _EmbeddingHere)
