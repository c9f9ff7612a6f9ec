"""From GGUF metadata to a `ModelShape`.

Source: `src/models/{llama,qwen2,qwen3,gemma3}.cpp` and `load_hparams` of llama.cpp, with one difference: a window in the
metadata of a Llama is kept (Mistral 7B 0.1 has one on all layers), where llama.cpp ignores it.
"""

import math
from array import array
from collections.abc import Sequence

from backends.engine.errors import ModelFileError
from backends.engine.families import FAMILIES, GEMMA3, LLAMA, MISTRAL, Family
from backends.engine.shape import LayerShape, ModelShape, RopeShape
from backends.gguf.errors import shown
from backends.gguf.model import GgufFile

_ARCHITECTURES = sorted(FAMILIES.keys() - {MISTRAL.name})  # a Mistral comes as a Llama
_BASE, _GEMMA_LOCAL_BASE, _GEMMA_PATTERN = 10_000.0, 10_000.0, 6
_GEMMA_27B_LAYERS = 62  # the one size whose query scale is not that of its heads, and the file does not say so

# What a file can ask for and the engine does not compute, with the values that ask for nothing.
_REFUSED: dict[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.scale": (0,),
    "attention.temperature_scale": (0,),
    "attention.kv_lora_rank": (0,),
    "attention.key_length_mla": (0,),
    "attention.value_length_mla": (0,),
    "embedding_scale": (0, 1),
    "expert_count": (0,),
    "logit_scale": (0, 1),
    "nextn_predict_layers": (0,),
    "pooling_type": (0,),
    "residual_scale": (0, 1),
    "rope.scaling.attn_factor": (0, 1),
}


def shape_of_gguf(file: GgufFile, *, vocab: int, tied: bool, divisors: tuple[float, ...] = ()) -> ModelShape:
    """Read the numbers of a model out of a checked header.

    Args:
        file: what `read_gguf` returned, with or without the content of large arrays.
        vocab: rows of the embedding.
        tied: whether the file has no head of its own.
        divisors: the content of `rope_freqs.weight`, one number per pair of dimensions of a head; empty where there is none.

    Raises:
        ModelFileError: the architecture, or something that the file asks for, is not implemented, or two numbers do not fit.
    """
    reader = _Reader(file)
    family = reader.family()
    heads, head_dim = reader.uniform("attention.head_count"), file.head_dim
    kv_heads = reader.uniform("attention.head_count_kv", heads)
    if kv_heads == 0 or heads % kv_heads:
        raise reader.error(f"{heads} heads are not a multiple of {kv_heads} key/value heads")
    if file.value_dim != head_dim or head_dim % 2:
        raise reader.error(f"heads are {head_dim} wide for keys and {file.value_dim} for values, expected one even number")
    rotated = reader.number("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise reader.error(f"RoPE over {rotated:g} of {head_dim} dimensions of a head is not supported")
    if len(divisors) not in (0, head_dim // 2):
        raise reader.error(f"rope_freqs.weight has {len(divisors):,} elements, expected {head_dim // 2}")
    gemma, hidden = family is GEMMA3, file.embedding_length
    layers = reader.layers(family, divisors)
    return ModelShape(
        architecture=MISTRAL.name if family is LLAMA and layers[0].window else family.name,
        vocab=vocab,
        hidden=hidden,
        intermediate=reader.uniform("feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        layers=layers,
        context=file.context_length,
        norm_eps=reader.positive("attention.layer_norm_rms_epsilon"),
        query_scale=(hidden // heads if gemma and len(layers) == _GEMMA_27B_LAYERS else head_dim) ** -0.5,
        activation=family.activation,
        embedding_scale=math.sqrt(hidden) if gemma else 1.0,
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        post_norms=family.post_norms,
        tied=tied,
        logit_softcap=reader.number("final_logit_softcapping", 0.0),
        attention_softcap=reader.number("attn_logit_softcapping", 0.0),
    )


class _Reader:
    """Metadata below `<architecture>.`, as numbers."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._prefix = file.architecture

    def error(self, problem: str) -> ModelFileError:
        return ModelFileError(f"{shown(self._file.path.name)}: {problem}")

    def family(self) -> Family:
        """The family of the file, when it asks for nothing that is not implemented."""
        if self._prefix not in _ARCHITECTURES:
            raise self.error(f"architecture {shown(self._prefix)} is not supported, only {', '.join(_ARCHITECTURES)} are")
        for name, neutral in _REFUSED.items():
            value = self._value(name)
            if value is not None and value not in neutral:
                raise self.error(f"{self._prefix}.{name} is {value}, which is not supported")
        return FAMILIES[self._prefix]

    def number(self, name: str, default: float) -> float:
        """A finite number of at least 0."""
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.error(f"{self._prefix}.{name} is {value}, expected a number of at least 0")
        return value

    def positive(self, name: str, default: float = 0.0) -> float:
        """A finite number above 0."""
        value = self.number(name, default)
        if value <= 0:
            raise self.error(f"{self._prefix}.{name} is missing or 0, expected a number above 0")
        return value

    def uniform(self, name: str, default: int = 0) -> int:
        """An integer above 0 that is the same for all layers."""
        value = self._value(name)
        values: Sequence[object] = value if isinstance(value, array) else [default if value is None else value]
        first = values[0] if len(set(values)) == 1 else None
        if isinstance(first, bool) or not isinstance(first, int) or first <= 0:
            raise self.error(f"{self._prefix}.{name} is {value}, expected one number above 0 for all layers")
        return first

    def layers(self, family: Family, divisors: tuple[float, ...]) -> tuple[LayerShape, ...]:
        """Each layer's RoPE and window."""
        count = self._file.block_count
        window = int(self.number("attention.sliding_window", 0))
        rope = self._rope(divisors)
        if not window:
            return (LayerShape(rope=rope),) * count
        if family is LLAMA:
            return (LayerShape(rope=rope, window=window),) * count
        if family is not GEMMA3:
            raise self.error(f"{self._prefix}.attention.sliding_window is {window:,}, which is not supported")
        local = RopeShape(base=self.positive("rope.freq_base_swa", _GEMMA_LOCAL_BASE))
        return tuple(
            LayerShape(rope=local, window=window) if is_local else LayerShape(rope=rope) for is_local in self._pattern(count)
        )

    def _pattern(self, count: int) -> list[bool]:
        """Which layers are local: one flag for each, or every how many layers there is a global one (0: never)."""
        name = "attention.sliding_window_pattern"
        value = self._value(name)
        if isinstance(value, array):
            if len(value) != count or not set(value) <= {0, 1}:
                raise self.error(f"{self._prefix}.{name} has {len(value):,} entries, expected {count} of 0 or 1")
            return [bool(flag) for flag in value]
        period = int(self.number(name, _GEMMA_PATTERN))
        return [period == 0 or (i + 1) % period != 0 for i in range(count)]

    def _rope(self, divisors: tuple[float, ...]) -> RopeShape:
        base = self.positive("rope.freq_base", _BASE)
        kind = self._value("rope.scaling.type")
        if kind not in (None, "none", "linear"):
            raise self.error(f"RoPE scaling '{kind}' is not supported, only linear is")
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 0.0))
        return RopeShape(base=base, factor=1.0 if kind == "none" else factor or 1.0, divisors=divisors)

    def _value(self, name: str) -> object:
        return self._file.metadata.get(f"{self._prefix}.{name}")
