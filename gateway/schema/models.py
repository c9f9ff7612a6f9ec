"""The answers of GET /v1/models. `max_model_len` (vLLM's name) and `meta` (llama-server's) are extensions."""

from msgspec import Struct


class ModelMeta(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is known about a model; unknown figures are left out. `size` is in bytes."""

    capabilities: tuple[str, ...]
    n_vocab: int | None = None
    n_params: int | None = None
    size: int | None = None
    architecture: str | None = None
    quantization: str | None = None


class Model(Struct, frozen=True, kw_only=True):
    """One model."""

    id: str
    object: str = "model"
    created: int
    owned_by: str
    max_model_len: int | None
    meta: ModelMeta


class ModelList(Struct, frozen=True, kw_only=True):
    """All models."""

    object: str = "list"
    data: list[Model]
