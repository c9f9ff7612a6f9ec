"""Embeddings: body to request, vectors to body."""

import sys
from array import array
from base64 import b64encode

import msgspec

from backends.types import Embeddings, EmbedRequest
from gateway.schema.embeddings import Embedding, EmbeddingList, EmbeddingRequest, EmbeddingUsage
from gateway.schema.scalars import MAX_INPUTS
from gateway.translate.prompts import to_prompts


def to_request(body: EmbeddingRequest, *, request_id: str, model: str, tenant: str = "") -> EmbedRequest:
    """Translate a body.

    Raises:
        InvalidRequest: nothing is given, too much, or something empty.
    """
    inputs = to_prompts(body.input, "input", limit=MAX_INPUTS, allow_empty=False)
    return EmbedRequest(id=request_id, model=model, inputs=inputs, dimensions=body.dimensions, tenant=tenant)


def to_response(embeddings: Embeddings, *, model: str, as_base64: bool) -> bytes:
    """Encode vectors. Both official SDKs ask for base64 by default."""
    data = [
        Embedding("embedding", index, b64encode(vector).decode("ascii") if as_base64 else _floats(vector))
        for index, vector in enumerate(embeddings.vectors)
    ]
    usage = EmbeddingUsage(embeddings.usage.prompt_tokens, embeddings.usage.prompt_tokens)
    return msgspec.json.encode(EmbeddingList("list", data, model, usage))


def _floats(vector: bytes) -> list[float]:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
