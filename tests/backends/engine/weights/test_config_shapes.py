"""`config.json` to a shape, by the rules of transformers, and back."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.errors import ModelFileError
from backends.engine.families import FAMILIES
from backends.engine.shape import LayerShape, ModelShape, RopeShape
from backends.engine.shapes.hf_config import parse_config
from backends.engine.shapes.of_config import shape_of_config
from backends.engine.shapes.to_config import config_of_shape
from tests.backends.engine.weights.folders import config

QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_act": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 7,
    "sliding_window": 16,
    "rope_theta": None,
    "tie_word_embeddings": None,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def _shape(**changes: Any) -> ModelShape:
    return shape_of_config(parse_config(json.dumps(config(**changes)).encode()))


def _ropes(**changes: Any) -> set[RopeShape]:
    return {layer.rope for layer in _shape(**changes).layers}


def _windows(**changes: Any) -> list[int]:
    return [layer.window for layer in _shape(**changes).layers]


def test_the_numbers_of_a_llama() -> None:
    shape = _shape(num_key_value_heads=None)
    assert (shape.architecture, shape.heads, shape.kv_heads, shape.head_dim) == ("llama", 4, 4, 16)
    assert (shape.query_scale, shape.embedding_scale, shape.tied, shape.qkv_bias) == (0.25, 1.0, True, False)
    assert not _shape(tie_word_embeddings=None).tied
    assert _shape(head_dim=32).head_dim == 32


@pytest.mark.parametrize(
    "settings",
    [
        {"rope_scaling": {"rope_type": "llama3"} | LLAMA3},
        {"rope_scaling": {"type": "llama3"} | LLAMA3},
        {"rope_theta": None, "rope_parameters": {"rope_type": "llama3", "rope_theta": 10_000.0} | LLAMA3},
    ],
)
def test_old_and_new_spellings_of_rope_are_the_same(settings: dict[str, Any]) -> None:
    assert _ropes(**settings) == {RopeShape(base=10_000.0, factor=8.0, low=1.0, high=4.0, original_context=64)}


def test_rope_has_the_defaults_of_transformers() -> None:
    assert _ropes(rope_theta=None) == {RopeShape(base=10_000.0)}
    assert _ropes(rope_theta=5e5, rope_parameters={"rope_type": "default"}) == {RopeShape(base=5e5)}
    assert _ropes(rope_scaling={"type": "linear", "factor": 2}) == {RopeShape(base=10_000.0, factor=2.0)}


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        (QWEN2 | {"sliding_window": 32}, [0, 0]),
        (QWEN2 | {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 1}, [0, 32]),
        (QWEN2 | {"sliding_window": 32, "use_sliding_window": True}, [0, 0]),
        (QWEN3 | {"use_sliding_window": True, "max_window_layers": 0}, [4096, 4096]),
        (
            QWEN3 | {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
            [8, 0],
        ),
        (MISTRAL | {"sliding_window": 64}, [64, 64]),
        (MISTRAL, [4096, 4096]),
        ({"sliding_window": 64}, [0, 0]),
        (GEMMA3, [16, 16, 16, 16, 16, 0, 16]),
        (GEMMA3 | {"sliding_window_pattern": 2}, [16, 0, 16, 0, 16, 0, 16]),
        (GEMMA3 | {"layer_types": ["full_attention"] * 6 + ["sliding_attention"]}, [0] * 6 + [16]),
    ],
)
def test_windows_follow_the_rules_of_each_family(changes: dict[str, Any], windows: list[int]) -> None:
    assert _windows(**changes) == windows


def test_a_window_that_is_null_is_none() -> None:
    raw = config(**MISTRAL) | {"sliding_window": None}
    assert {layer.window for layer in shape_of_config(parse_config(json.dumps(raw).encode())).layers} == {0}


@pytest.mark.parametrize(
    "settings",
    [
        {"rope_theta": 1e6, "rope_local_base_freq": 10_000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            }
        },
    ],
)
def test_gemma_has_a_rope_for_each_kind_of_layer(settings: dict[str, Any]) -> None:
    shape = _shape(**(GEMMA3 | settings))
    for layer in shape.layers:
        assert layer.rope == (RopeShape(base=10_000.0) if layer.window else RopeShape(base=1e6, factor=8.0))
    assert (shape.tied, shape.head_dim, shape.query_scale, shape.embedding_scale) == (True, 256, 1 / 16, 8.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"},
            "architecture 'MixtralForCausalLM' is not supported",
        ),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            "'LlamaForSequenceClassification' is not supported, only Llama",
        ),
        ({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"}, "is not supported"),
        ({"hidden_act": "gelu"}, "activation 'gelu' is not supported for LlamaForCausalLM"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"mlp_bias": True}, "mlp_bias is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "RoPE scaling 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "factors of the RoPE scaling 'llama3' are missing"),
        ({"num_key_value_heads": 3}, "4 heads are not a multiple of 3 key/value heads"),
        ({"head_dim": 15}, "head_dim is 15, expected an even number"),
        ({"hidden_size": None}, "missing required field `hidden_size`"),
        ({"hidden_size": "64"}, r"Expected `int`, got `str` - at `\$.hidden_size`"),
        ({"num_hidden_layers": 10**6}, "Expected `int` <= 512"),
        ({"rms_norm_eps": 0}, "Expected `float` > 0"),
        (GEMMA3 | {"layer_types": ["full_attention"]}, "layer_types has 1 entries, but the model has 7 layers"),
        (GEMMA3 | {"layer_types": ["chunked_attention"] * 7}, "layers of type 'chunked_attention' are not supported"),
        (GEMMA3 | {"use_bidirectional_attention": True}, "use_bidirectional_attention is not supported"),
        (GEMMA3 | {"rope_parameters": {"rope_theta": 1e6}}, "neither full_attention nor sliding_attention"),
        (QWEN2 | {"layer_types": ["sliding_attention"] * 2}, "but no sliding_window is in use"),
        (MISTRAL | {"layer_types": ["full_attention"] * 2}, "layer_types of a Mistral model is not supported"),
    ],
)
def test_what_is_not_implemented_is_named(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelFileError, match=rf"^config.json: .*{reason}"):
        _shape(**changes)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{" * 100_000, b'{"model_type": "\xff"}', b"null"])
def test_what_is_no_configuration_is_refused(raw: bytes) -> None:
    with pytest.raises(ModelFileError, match=r"^config.json: "):
        parse_config(raw)


@st.composite
def _shapes(draw: st.DrawFn) -> ModelShape:
    family = FAMILIES[draw(st.sampled_from(sorted(FAMILIES)))]
    heads, group, head_dim = draw(st.integers(1, 4)), draw(st.integers(1, 4)), 2 * draw(st.integers(1, 64))
    rope = RopeShape(base=draw(st.floats(1.0, 1e7)), factor=draw(st.sampled_from([1.0, 8.0])))
    gemma = family.name == "gemma3"
    local = RopeShape(base=draw(st.floats(1.0, 1e7))) if gemma else rope
    window = draw(st.integers(1, 9999))
    flags = draw(st.lists(st.booleans(), min_size=1, max_size=8))
    if family.windows != "some":
        flags = [family.windows == "all" and flags[0]] * len(flags)
    scalar = draw(st.integers(1, 999))
    return ModelShape(
        architecture=family.name,
        vocab=draw(st.integers(1, 2**18)),
        hidden=64,
        intermediate=draw(st.integers(1, 2**16)),
        heads=heads * group,
        kv_heads=heads,
        head_dim=head_dim,
        layers=tuple(LayerShape(rope=local, window=window) if flag else LayerShape(rope=rope) for flag in flags),
        context=draw(st.integers(1, 2**20)),
        norm_eps=draw(st.floats(1e-8, 1e-3)),
        query_scale=(float(scalar) if gemma else head_dim) ** -0.5,
        activation=family.activation,
        embedding_scale=8.0 if gemma else 1.0,
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        post_norms=family.post_norms,
        tied=draw(st.booleans()),
        logit_softcap=draw(st.sampled_from([0.0, 30.0])) if gemma else 0.0,
    )


@given(shape=_shapes())
@settings(max_examples=200, deadline=None)
def test_a_written_configuration_says_what_the_shape_said(shape: ModelShape) -> None:
    try:
        written = config_of_shape(shape)
    except ModelFileError:
        # Gemma's scaling is on its global layers; where it has none there is nowhere to write it.
        assert shape.architecture == "gemma3"
        assert all(layer.window for layer in shape.layers)
        return
    assert shape_of_config(parse_config(json.dumps(written).encode())) == shape


def test_a_shape_that_no_configuration_can_say_is_refused() -> None:
    shape = _shape()
    odd = ModelShape(**{name: getattr(shape, name) for name in shape.__slots__} | {"query_scale": 0.3})
    with pytest.raises(ModelFileError, match=r"the configuration of LlamaForCausalLM has no words for its layers"):
        config_of_shape(odd)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_transformers_computes_the_same_rope_from_a_written_configuration(tmp_path: Path, family: str) -> None:
    import torch
    from transformers import AutoConfig, Gemma3TextConfig, LlamaConfig
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    changes = {"llama": {"rope_scaling": {"rope_type": "llama3"} | LLAMA3}, "qwen2": QWEN2, "gemma3": GEMMA3}[family]
    shape = _shape(**changes)
    (tmp_path / "config.json").write_text(json.dumps(config_of_shape(shape)))
    loaded = AutoConfig.from_pretrained(tmp_path)
    frequencies = 1 / torch.tensor(shape.layers[0].rope.base) ** (torch.arange(0, shape.head_dim, 2) / shape.head_dim)
    if isinstance(loaded, Gemma3TextConfig):
        rope = Gemma3RotaryEmbedding(loaded)
        assert torch.allclose(rope.sliding_attention_inv_freq, frequencies)
        assert loaded.layer_types == ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]
    else:
        found = LlamaRotaryEmbedding(loaded).inv_freq
        expected = _llama3(frequencies, shape.layers[0].rope) if isinstance(loaded, LlamaConfig) else frequencies
        assert torch.allclose(found, expected)


def _llama3(frequencies: Any, rope: RopeShape) -> Any:
    from backends.engine.shapes.llama3_rope import llama3_divisor

    divisors = [llama3_divisor(rope, pair, 2 * len(frequencies)) for pair in range(len(frequencies))]
    return frequencies / frequencies.new_tensor(divisors)
