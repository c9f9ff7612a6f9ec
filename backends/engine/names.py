"""What the weights are called inside the engine, whatever file they come from.

    embed                                   [vocab, hidden]
    layers.{i}.attn_norm                    [hidden]
    layers.{i}.{q,k,v}                      [heads or kv_heads * head_dim, hidden], with .bias where the shape says qkv_bias
    layers.{i}.{q_norm,k_norm}              [head_dim], where the shape says qk_norm
    layers.{i}.o                            [hidden, heads * head_dim]
    layers.{i}.attn_post_norm               [hidden], where the shape says post_norms
    layers.{i}.ffn_norm                     [hidden]
    layers.{i}.{gate,up}                    [intermediate, hidden]
    layers.{i}.down                         [hidden, intermediate]
    layers.{i}.ffn_post_norm                [hidden], where the shape says post_norms
    final_norm                              [hidden]
    head                                    [vocab, hidden], unless the shape says tied

Rows of q and k are in NEOX order (the halves of a head belong together), also where a GGUF file interleaves them.
"""

from backends.engine.shape import ModelShape

Dimensions = tuple[int, ...]


def expected(shape: ModelShape) -> dict[str, Dimensions]:
    """Every weight that a model of this shape must have, with its dimensions."""
    hidden, head_dim = shape.hidden, shape.head_dim
    queries, keys = shape.heads * head_dim, shape.kv_heads * head_dim
    weights: dict[str, Dimensions] = {"embed": (shape.vocab, hidden), "final_norm": (hidden,)}
    if not shape.tied:
        weights["head"] = (shape.vocab, hidden)
    for i in range(len(shape.layers)):
        layer: dict[str, Dimensions] = {
            "attn_norm": (hidden,),
            "q": (queries, hidden),
            "k": (keys, hidden),
            "v": (keys, hidden),
            "o": (hidden, queries),
            "ffn_norm": (hidden,),
            "gate": (shape.intermediate, hidden),
            "up": (shape.intermediate, hidden),
            "down": (hidden, shape.intermediate),
        }
        if shape.qkv_bias:
            layer |= {"q.bias": (queries,), "k.bias": (keys,), "v.bias": (keys,)}
        if shape.qk_norm:
            layer |= {"q_norm": (head_dim,), "k_norm": (head_dim,)}
        if shape.post_norms:
            layer |= {"attn_post_norm": (hidden,), "ffn_post_norm": (hidden,)}
        weights |= {f"layers.{i}.{name}": dimensions for name, dimensions in layer.items()}
    return weights
