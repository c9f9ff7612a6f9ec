"""What llama.cpp calls the weights (`LLM_TENSOR_NAMES` of its `src/llama-arch.cpp`). Importing this loads no torch."""

_WHOLE = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight"}
_IN_LAYER = {
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "o": "attn_output",
    "attn_post_norm": "post_attention_norm",
    "ffn_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "ffn_post_norm": "post_ffw_norm",
}


def gguf_name(weight: str) -> str:
    """`layers.3.q.bias` is `blk.3.attn_q.bias`; the argument is a name of `backends.engine.names`."""
    if weight in _WHOLE:
        return _WHOLE[weight]
    _, layer, name = weight.split(".", 2)
    name, _, suffix = name.partition(".")
    return f"blk.{layer}.{_IN_LAYER[name]}.{suffix or 'weight'}"
