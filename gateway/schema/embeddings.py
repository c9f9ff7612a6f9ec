"""The body of POST /v1/embeddings, and its answer. Source: OpenAI API reference, "Create embeddings"."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.schema.scalars import ModelName, PromptInput


class EmbeddingRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts or token ids to embed."""

    input: PromptInput
    model: ModelName | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65536)] | None = None
    user: str | None = None


class Embedding(Struct, frozen=True):
    """One vector: numbers, or base64 of little-endian float32."""

    object: str
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Struct, frozen=True):
    """Tokens of all inputs together."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Struct, frozen=True):
    """The whole answer, in the order of the inputs."""

    object: str
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
