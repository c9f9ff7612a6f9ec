"""From a `config.json` to a `ModelShape`, by the rules and defaults of transformers 5.24.

Gemma 3's `attn_logit_softcapping` is left over from Gemma 2: nothing there computes with it.
"""

import math

from msgspec import UNSET

from backends.engine.errors import ModelFileError
from backends.engine.families import FAMILIES, GEMMA3, LLAMA, MISTRAL, QWEN2, QWEN3, Family
from backends.engine.shape import LayerShape, ModelShape, RopeShape
from backends.engine.shapes.hf_config import HfConfig, RopeConfig
from backends.gguf.errors import shown

_FULL, _SLIDING = "full_attention", "sliding_attention"
_DEFAULT_WINDOW = 4_096  # what a configuration that does not mention a window means
_BASE = 10_000.0
_GEMMA_BASE, _GEMMA_LOCAL_BASE, _GEMMA_PATTERN = 1_000_000.0, 10_000.0, 6
_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def shape_of_config(config: HfConfig) -> ModelShape:
    """Read the numbers of a model.

    Raises:
        ModelFileError: the architecture, or something that the configuration asks for, is not implemented, or two numbers do
            not fit.
    """
    family = _family(config)
    _demand_implemented(config, family)
    heads = config.num_attention_heads
    kv_heads = config.num_key_value_heads or heads
    head_dim = config.head_dim or family.head_dim or config.hidden_size // heads
    if heads % kv_heads:
        raise ModelFileError(f"config.json: {heads} heads are not a multiple of {kv_heads} key/value heads")
    if head_dim % 2 or not head_dim:
        raise ModelFileError(f"config.json: head_dim is {head_dim}, expected an even number above 0")
    gemma = family is GEMMA3
    return ModelShape(
        architecture=family.name,
        vocab=config.vocab_size,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        layers=_layers(config, family),
        context=config.max_position_embeddings,
        norm_eps=config.rms_norm_eps,
        query_scale=(config.query_pre_attn_scalar if gemma else head_dim) ** -0.5,
        activation=family.activation,
        embedding_scale=math.sqrt(config.hidden_size) if gemma else 1.0,
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        post_norms=family.post_norms,
        tied=family.tied if config.tie_word_embeddings is None else config.tie_word_embeddings,
        logit_softcap=(config.final_logit_softcapping or 0.0) if gemma else 0.0,
    )


def _family(config: HfConfig) -> Family:
    for family in FAMILIES.values():
        if config.model_type == family.model_type and config.architectures in (None, [family.hf_class]):
            return family
    found = ", ".join(config.architectures or ()) or config.model_type
    known = ", ".join(family.hf_class for family in FAMILIES.values())
    raise ModelFileError(f"config.json: architecture {shown(found)} is not supported, only {known} are")


def _demand_implemented(config: HfConfig, family: Family) -> None:
    activation = (config.hidden_activation if family is GEMMA3 else None) or config.hidden_act
    refused = {
        f"activation {shown(activation or '')}": activation and _ACTIVATIONS.get(activation) != family.activation,
        "attention_bias": config.attention_bias and family is not QWEN2,
        "mlp_bias": config.mlp_bias and family is LLAMA,
        "use_bidirectional_attention": config.use_bidirectional_attention and family is GEMMA3,
        "partial_rotary_factor": config.partial_rotary_factor not in (None, 1.0),
        "layer_types of a Mistral model": config.layer_types is not None and family is MISTRAL,
    }
    for what, is_wanted in refused.items():
        if is_wanted:
            raise ModelFileError(f"config.json: {what} is not supported for {family.hf_class}")


def _layers(config: HfConfig, family: Family) -> tuple[LayerShape, ...]:
    kinds = _kinds(config, family)
    if len(kinds) != config.num_hidden_layers:
        raise ModelFileError(
            f"config.json: layer_types has {len(kinds)} entries, but the model has {config.num_hidden_layers} layers"
        )
    ropes, windows = _ropes(config, family), {_FULL: 0, _SLIDING: _window(config, family)}
    for kind in set(kinds):
        if kind not in windows:
            raise ModelFileError(f"config.json: layers of type {shown(kind)} are not supported")
        if kind == _SLIDING and not windows[kind]:
            raise ModelFileError(f"config.json: layers are of type {kind}, but no sliding_window is in use")
    return tuple(LayerShape(rope=ropes[kind], window=windows[kind]) for kind in kinds)


def _kinds(config: HfConfig, family: Family) -> list[str]:
    count, first = config.num_hidden_layers, 0 if family is MISTRAL else config.max_window_layers
    if config.layer_types is not None and family.windows == "some":
        return config.layer_types
    if family is GEMMA3:
        period = config.sliding_window_pattern or _GEMMA_PATTERN
        return [_SLIDING if (i + 1) % period else _FULL for i in range(count)]
    is_sliding = _window(config, family) > 0
    return [_SLIDING if is_sliding and i >= first else _FULL for i in range(count)]


def _window(config: HfConfig, family: Family) -> int:
    if family.windows == "none" or (family in (QWEN2, QWEN3) and not config.use_sliding_window):
        return 0
    return _DEFAULT_WINDOW if config.sliding_window is UNSET else config.sliding_window or 0


def _ropes(config: HfConfig, family: Family) -> dict[str, RopeShape]:
    """The RoPE of each kind of layer. Gemma 3 has two; what its old files say about scaling is about the global layers only."""
    flat = config.rope_scaling or config.rope_parameters
    if family is not GEMMA3:
        return dict.fromkeys((_FULL, _SLIDING), _rope(flat, config.rope_theta or _BASE, config))
    nested = config.rope_parameters or RopeConfig(full_attention=RopeConfig(), sliding_attention=RopeConfig())
    full, sliding = nested.full_attention, nested.sliding_attention
    if full is None and sliding is None:
        raise ModelFileError("config.json: rope_parameters has neither full_attention nor sliding_attention")
    base = (full and full.rope_theta) or config.rope_theta or _GEMMA_BASE
    return {
        _FULL: _rope(config.rope_scaling or full, base, config),
        _SLIDING: _rope(sliding, config.rope_local_base_freq or _GEMMA_LOCAL_BASE, config),
    }


def _rope(params: RopeConfig | None, base: float, config: HfConfig) -> RopeShape:
    """One RoPE; `base` is for where the parameters name none."""
    if params is None:
        return RopeShape(base=base)
    base = params.rope_theta or base
    kind = params.rope_type or params.type or "default"
    if params.partial_rotary_factor not in (None, 1.0):
        raise ModelFileError("config.json: partial_rotary_factor is not supported")
    if kind == "default":
        return RopeShape(base=base)
    if kind == "linear" and params.factor:
        return RopeShape(base=base, factor=params.factor)
    low, high = params.low_freq_factor, params.high_freq_factor
    if kind == "llama3" and params.factor and low and high and low < high:
        original = params.original_max_position_embeddings or config.max_position_embeddings
        return RopeShape(base=base, factor=params.factor, low=low, high=high, original_context=original)
    if kind in ("linear", "llama3"):
        raise ModelFileError(f"config.json: factors of the RoPE scaling '{kind}' are missing or do not fit")
    raise ModelFileError(f"config.json: RoPE scaling {shown(kind)} is not supported, only default, linear and llama3 are")
