"""Writes small Hugging Face folders: by transformers, or tensor by tensor so that a test can break what it wants."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

VOCAB, HIDDEN, WIDE, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 96, 64, 128, 4, 2, 16, 2

Json = dict[str, Any]
Tensors = dict[str, torch.Tensor]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3")


def config(**changes: Any) -> Json:
    """The `config.json` of a Llama; a change to None takes a field away."""
    numbers: Json = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    return {name: value for name, value in (numbers | changes).items() if value is not None}


def tensors(dtype: torch.dtype = torch.float32) -> Tensors:
    """The tensors of that Llama."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        shapes |= {
            f"model.layers.{i}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (HIDDEN,),
                "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
                "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
                "post_attention_layernorm": (HIDDEN,),
                "mlp.gate_proj": (WIDE, HIDDEN),
                "mlp.up_proj": (WIDE, HIDDEN),
                "mlp.down_proj": (HIDDEN, WIDE),
            }.items()
        }
    random = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=random).to(dtype) for name, shape in shapes.items()}


def write(folder: Path, content: Tensors | list[Tensors] | None = None, settings: Json | None = None) -> Path:
    """Write a folder; a list of tensors makes one shard of each, with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings or config()))
    content = tensors() if content is None else content
    if isinstance(content, dict):
        content = {name: tensor.contiguous() for name, tensor in content.items()}
        save_file(content, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map = {}
    for number, shard in enumerate(content, start=1):
        name = f"model-{number:05}-of-{len(content):05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, name)
    write_index(folder, weight_map)
    return folder


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    """Write an index that says so."""
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def halves() -> list[Tensors]:
    """The tensors of the Llama in two shards."""
    items = list(tensors().items())
    return [dict(items[:9]), dict(items[9:])]


def save_random(name: str, folder: Path, dtype: torch.dtype = torch.bfloat16, **settings: Any) -> Tensors:
    """Save a random model of a family with transformers, and return its state."""
    import transformers

    numbers = {field: value for field, value in config().items() if field not in ("architectures", "model_type", "hidden_act")}
    numbers["num_hidden_layers"] = 3
    if name in ("qwen3", "gemma3"):
        numbers["head_dim"] = 32
    numbers["tie_word_embeddings"] = name in ("qwen3", "gemma3")
    kinds = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
        "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM, {"sliding_window": 32, "head_dim": 24}),
        "qwen2": (
            transformers.Qwen2Config,
            transformers.Qwen2ForCausalLM,
            {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1},
        ),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, {}),
        "gemma3": (
            transformers.Gemma3TextConfig,
            transformers.Gemma3ForCausalLM,
            {"sliding_window": 16, "sliding_window_pattern": 3, "query_pre_attn_scalar": 48, "final_logit_softcapping": 30.0},
        ),
    }
    config_class, model_class, more = kinds[name]
    model = model_class(config_class(**(numbers | more | settings)))
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.1)
    model.to(dtype).save_pretrained(folder)
    state: Tensors = model.state_dict()
    return state
