"""What Hugging Face folders call the weights (the module names of transformers). Importing this loads no torch."""

_WHOLE = {"embed": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "o": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
# With norms behind attention and feed-forward, the one behind attention has the name that is otherwise the feed-forward's.
_WITH_POST_NORMS = {
    "attn_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm",
}


def folder_name(weight: str, *, post_norms: bool) -> tuple[str, str]:
    """Module and parameter: `layers.3.q.bias` is (`model.layers.3.self_attn.q_proj`, `bias`).

    Args:
        weight: a name of `backends.engine.names`.
        post_norms: that of the model's shape.
    """
    if weight in _WHOLE:
        return _WHOLE[weight], "weight"
    _, layer, name = weight.split(".", 2)
    name, _, suffix = name.partition(".")
    module = (_WITH_POST_NORMS.get(name) if post_norms else None) or _IN_LAYER[name]
    return f"model.layers.{layer}.{module}", suffix or "weight"
