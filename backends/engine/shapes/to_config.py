"""From a `ModelShape` to the `config.json` that transformers and vLLM load.

RoPE is spelt as in version 4 of transformers, which version 5 reads too.
"""

from dataclasses import replace

import msgspec

from backends.engine.errors import ModelFileError
from backends.engine.families import FAMILIES, GEMMA3, QWEN2, QWEN3, Family
from backends.engine.shape import ModelShape, RopeShape
from backends.engine.shapes.hf_config import parse_config
from backends.engine.shapes.llama3_rope import recognise_llama3
from backends.engine.shapes.of_config import shape_of_config

_ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh"}


def config_of_shape(shape: ModelShape) -> dict[str, object]:
    """The numbers of a model as fields of a `config.json`; dtype and special tokens are for the caller to add.

    Raises:
        ModelFileError: the family's configuration cannot say what the shape says.
    """
    layers = tuple(replace(layer, rope=recognise_llama3(layer.rope)) for layer in shape.layers)
    shape, family = replace(shape, layers=layers), FAMILIES[shape.architecture]
    config = _numbers(shape, family) | _attention(shape, family)
    # The rules of a family are in one place: whatever these fields cannot express shows when they are read back.
    if shape_of_config(parse_config(msgspec.json.encode(config))) != shape:
        raise ModelFileError(
            f"this model cannot be exported: the configuration of {family.hf_class} has no words for its layers"
        )
    return config


def _numbers(shape: ModelShape, family: Family) -> dict[str, object]:
    return {
        "architectures": [family.hf_class],
        "model_type": family.model_type,
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": len(shape.layers),
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.norm_eps,
        "hidden_activation" if family is GEMMA3 else "hidden_act": _ACTIVATIONS[shape.activation],
        "tie_word_embeddings": shape.tied,
    }


def _attention(shape: ModelShape, family: Family) -> dict[str, object]:
    local = [layer for layer in shape.layers if layer.window]
    whole = next((layer for layer in shape.layers if not layer.window), shape.layers[0])
    config: dict[str, object] = {"rope_theta": whole.rope.base, "rope_scaling": _scaling(whole.rope)}
    if family is GEMMA3:
        config |= {
            "query_pre_attn_scalar": round(shape.query_scale**-2),
            "final_logit_softcapping": shape.logit_softcap or None,
        }
        if local:
            config["rope_local_base_freq"] = local[0].rope.base
    if family.windows != "none" and (local or family is not GEMMA3):  # Gemma's code wants a number even where no layer has one
        config["sliding_window"] = local[0].window if local else None
    if family.windows == "some":
        config["layer_types"] = ["sliding_attention" if layer.window else "full_attention" for layer in shape.layers]
    if family in (QWEN2, QWEN3):
        config["use_sliding_window"] = bool(local)
    return config


def _scaling(rope: RopeShape) -> dict[str, float | str] | None:
    if rope.original_context:
        return {
            "rope_type": "llama3",
            "factor": rope.factor,
            "low_freq_factor": rope.low,
            "high_freq_factor": rope.high,
            "original_max_position_embeddings": rope.original_context,
        }
    return {"rope_type": "linear", "factor": rope.factor} if rope.factor != 1.0 else None
