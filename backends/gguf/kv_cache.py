"""How much memory a model's KV cache takes for each token, computed from the metadata, layer by layer.

Knows nothing of any engine's padding or of recurrent state. An upper bound: local-attention layers count as if they kept every
token. Source: layers x KV heads x (key + value width) x bytes per element, with the exceptions
that the metadata name.
"""

from array import array

from backends.gguf.model import GgufFile
from backends.gguf.types import GGML_TYPES_BY_NAME, GgmlType


def kv_bytes_per_token(model: GgufFile, type_k: str = "f16", type_v: str = "f16") -> int:
    """Bytes that one token of one sequence takes in all layers together.

    Args:
        model: a checked file.
        type_k, type_v: ggml types of the cached keys and values (`f16`, `q8_0`, ...), in either case.

    Raises:
        ValueError: there is no such ggml type.
    """
    kind_k, kind_v = _ggml_type(type_k), _ggml_type(type_v)
    heads = model.head_count_kv
    layers = (heads,) * model.block_count if isinstance(heads, int) else heads
    # The last layers of some models read the cache of earlier ones (Gemma 3n).
    own = max(len(layers) - model.hyperparameter("attention.shared_kv_layers"), 0)
    local = _local_layers(model, len(layers))
    local_k = model.hyperparameter("attention.key_length_swa", model.head_dim)
    local_v = model.hyperparameter("attention.value_length_swa", model.value_dim)
    total = 0
    for heads_kv, is_local in zip(layers[:own], local, strict=False):
        total += _row_bytes(kind_k, heads_kv * (local_k if is_local else model.head_dim))
        total += _row_bytes(kind_v, heads_kv * (local_v if is_local else model.value_dim))
    return total


def _local_layers(model: GgufFile, layers: int) -> tuple[bool, ...]:
    pattern = model.metadata.get(f"{model.architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, array) and len(pattern) == layers:
        return tuple(bool(entry) for entry in pattern)
    return (False,) * layers


def _row_bytes(kind: GgmlType, elements: int) -> int:
    return -(-elements // kind.block_size) * kind.block_bytes


def _ggml_type(name: str) -> GgmlType:
    kind = GGML_TYPES_BY_NAME.get(name.upper())
    if kind is None:
        raise ValueError(f"{name[:32]!r} is no ggml type; there are {', '.join(known.lower() for known in GGML_TYPES_BY_NAME)}")
    return kind
