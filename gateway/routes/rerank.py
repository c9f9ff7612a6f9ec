"""POST /v1/rerank and POST /rerank: documents in the order in which they fit a query.

No engine here reranks, so a body is passed on, as it is, to a server that does. Servers disagree about the details (Jina,
Cohere, vLLM, llama-server); what they share is checked only where a deployment of the model is not such a server.
"""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from backends.errors import Unsupported
from gateway.dispatch.answer import Answer
from gateway.routes.asked import Asked
from gateway.routes.door import Endpoint
from gateway.routing.deployment import Deployment
from gateway.translate.body import Body
from gateway.translate.ending import OpenAiEnding


class _RerankRequest(Struct, frozen=True, kw_only=True):
    """What all servers want; a document may be a text or an object."""

    query: str
    documents: Annotated[list[Raw], Meta(min_length=1)]
    top_n: Annotated[int, Meta(ge=1)] | None = None


_BODY = Body(_RerankRequest)


class _RerankHere:
    """A request that nobody here can answer."""

    def __init__(self, asked: Asked) -> None:
        _BODY.decode(asked.body)
        self._model = asked.call.model

    async def open(self, deployment: Deployment) -> Answer:
        """Refuse: only servers that are forwarded to can rerank."""
        raise Unsupported(f"The model '{self._model[:200]}' cannot rerank.", param="model")


RERANK_ENDPOINT = Endpoint("rerank", "/v1/rerank", "rerank", "documents", OpenAiEnding(), _RerankHere)
SHORT_RERANK_ENDPOINT = RERANK_ENDPOINT._replace(path="/rerank")
"""Where Jina's and llama-server's clients look for it."""
