"""What a transformer is made of, as numbers: read from a GGUF header or a `config.json`, used by everything that computes.

Plain data, no tensor. The supported architectures (Llama, Qwen2, Qwen3, Mistral, Gemma 3) differ in nothing but these fields.
"""

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeShape:
    """Rotary embedding of one kind of layer; the halves of a head are rotated against each other (NEOX order).

    `factor` divides all positions (linear scaling). `low`, `high` and `original_context` are Llama 3's frequency-dependent
    scaling, off while `original_context` is 0. `divisors`, one per pair of dimensions, divide the frequencies (GGUF
    `rope_freqs.weight`); empty for none.
    """

    base: float
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original_context: int = 0
    divisors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What differs from layer to layer. `window` counts the keys a query sees, itself included; 0 is all of them."""

    rope: RopeShape
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder-only transformer with grouped-query attention and a gated feed-forward.

    `query_scale` multiplies the queries before the dot product, `embedding_scale` the token embeddings. Norm weights are plain
    multipliers (the loader adds Gemma's one). `tied` means that the head is the embedding. `post_norms` are the norms that
    Gemma has behind attention and feed-forward, `qk_norm` the norms of each query and key head. A soft cap of 0 is none.
    """

    architecture: str
    vocab: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[LayerShape, ...]
    context: int
    norm_eps: float
    query_scale: float
    activation: Activation = "silu"
    embedding_scale: float = 1.0
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    tied: bool = False
    logit_softcap: float = 0.0
    attention_softcap: float = 0.0

    @property
    def group(self) -> int:
        """Query heads per key/value head; query head h reads key/value head h // group."""
        return self.heads // self.kv_heads
