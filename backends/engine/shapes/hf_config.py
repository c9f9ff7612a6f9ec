"""The fields of a Hugging Face `config.json` that say what a model computes, strictly typed.

What is not named here does not change the numbers of a causal language model at inference (dropout, initialisation, caching).
Source: `configuration_*.py` and `modeling_rope_utils.py` of transformers 5.24; version 4 spells RoPE differently, and both are
read.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from backends.engine.errors import ModelFileError
from backends.gguf.hyperparameters import MAX_LAYERS

Width = Annotated[int, Meta(ge=1, le=2**20)]
Positive = Annotated[float, Meta(gt=0, le=1e30)]


class RopeConfig(Struct, kw_only=True):
    """One RoPE setting, or (Gemma 3) one for each kind of layer inside it. `type` is the old name of `rope_type`."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: Positive | None = None
    factor: Positive | None = None
    low_freq_factor: Positive | None = None
    high_freq_factor: Positive | None = None
    original_max_position_embeddings: Annotated[int, Meta(ge=1)] | None = None
    partial_rotary_factor: float | None = None
    full_attention: "RopeConfig | None" = None
    sliding_attention: "RopeConfig | None" = None


class HfConfig(Struct, kw_only=True):
    """A `config.json`, as the file has it: no default of any family is filled in."""

    model_type: str
    architectures: list[str] | None = None
    vocab_size: Annotated[int, Meta(ge=1, le=2**24)]
    hidden_size: Width
    intermediate_size: Annotated[int, Meta(ge=1, le=2**24)]
    num_hidden_layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS)]
    num_attention_heads: Width
    num_key_value_heads: Width | None = None
    head_dim: Width | None = None
    max_position_embeddings: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    rms_norm_eps: Annotated[float, Meta(gt=0, lt=1)] = 1e-6
    hidden_act: str | None = None
    hidden_activation: str | None = None
    tie_word_embeddings: bool | None = None
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    rope_theta: Positive | None = None
    rope_local_base_freq: Positive | None = None
    rope_scaling: RopeConfig | None = None
    rope_parameters: RopeConfig | None = None
    partial_rotary_factor: float | None = None
    sliding_window: Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType | None = UNSET
    use_sliding_window: bool | None = None
    max_window_layers: Annotated[int, Meta(ge=0)] = 28
    layer_types: list[str] | None = None
    sliding_window_pattern: Annotated[int, Meta(ge=1)] | None = None
    query_pre_attn_scalar: Positive = 256.0
    final_logit_softcapping: Positive | None = None
    use_bidirectional_attention: bool | None = None
    quantization_config: Raw = Raw(b"null")


def parse_config(raw: bytes) -> HfConfig:
    """Decode the bytes of a `config.json`.

    Raises:
        ModelFileError: they are not JSON, or a field is missing or has an impossible value.
    """
    try:
        return msgspec.json.decode(raw, type=HfConfig)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ModelFileError(f"config.json: {error}") from error
