"""All weights of a model: norms once, matrices once for each phase."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from backends.engine.model.head import Words, read_words
from backends.engine.precision.build import LinearBuilder
from backends.engine.precision.linear import Linear
from backends.engine.precision.precisions import Precisions
from backends.engine.weights.source import WeightSource
from kernels.ops import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorms:
    """The norms of one layer, [hidden] float32; those behind attention and feed-forward only where the model has them."""

    attn: torch.Tensor
    ffn: torch.Tensor
    attn_post: torch.Tensor | None = None
    ffn_post: torch.Tensor | None = None
    q: torch.Tensor | None = None
    k: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProducts:
    """The matrix products of one layer in one precision."""

    qkv: Linear
    o: Linear
    gate_up: Linear
    down: Linear

    @property
    def nbytes(self) -> int:
        """What they take."""
        return sum(linear.nbytes for linear in (self.qkv, self.o, self.gate_up, self.down))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """A loaded model. `prefill` and `decode` are the same list when one set serves both phases."""

    norms: list[LayerNorms]
    prefill: list[LayerProducts]
    decode: list[LayerProducts]
    embed: Words
    head: Words
    final_norm: torch.Tensor

    def memory(self) -> dict[str, int]:
        """Bytes of each part: `prefill`, `decode`, `words`."""
        words = self.embed.nbytes + (0 if self.head is self.embed else self.head.nbytes)
        decode = sum(layer.nbytes for layer in self.decode)
        prefill = 0 if self.prefill is self.decode else sum(layer.nbytes for layer in self.prefill)
        return {"prefill": prefill, "decode": decode, "words": words}

    def kinds(self) -> dict[str, str]:
        """The precision of each phase, for people."""
        return {"prefill": _kinds(self.prefill), "decode": _kinds(self.decode), "head": self.head.kind}


def load_weights(
    source: WeightSource, precisions: Precisions, device: Device, progress: Callable[[int, int], None] = lambda done, of: None
) -> ModelWeights:
    """Read a model layer by layer: beside what is kept, one layer's tensors are in memory at a time.

    Args:
        progress: told how many layers are done, of how many.

    Raises:
        ModelFileError: the data are damaged.
    """
    shape = source.shape
    decode = LinearBuilder(source, precisions.decode, device, dynamic=False)
    prefill = None
    if precisions.prefill is not None:
        prefill = LinearBuilder(source, precisions.prefill, device, dynamic=True)
    norms, prefill_layers, decode_layers = [], [], []
    for i in range(len(shape.layers)):
        norms.append(_norms(source, i, device))
        decode_layers.append(_products(decode, i, shape.qkv_bias))
        if prefill is not None:
            prefill_layers.append(_products(prefill, i, shape.qkv_bias))
        progress(i + 1, len(shape.layers))
    embed = read_words(source, "embed", precisions.head, device)
    return ModelWeights(
        norms=norms,
        prefill=prefill_layers or decode_layers,
        decode=decode_layers,
        embed=embed,
        head=embed if shape.tied else read_words(source, "head", precisions.head, device),
        final_norm=source.dense("final_norm").float().to(device.place),
    )


def _norms(source: WeightSource, i: int, device: Device) -> LayerNorms:
    shape = source.shape

    def read(name: str, present: bool = True) -> torch.Tensor | None:
        return source.dense(f"layers.{i}.{name}").float().contiguous().to(device.place) if present else None

    attn, ffn = read("attn_norm"), read("ffn_norm")
    assert attn is not None
    assert ffn is not None
    return LayerNorms(
        attn=attn,
        ffn=ffn,
        attn_post=read("attn_post_norm", shape.post_norms),
        ffn_post=read("ffn_post_norm", shape.post_norms),
        q=read("q_norm", shape.qk_norm),
        k=read("k_norm", shape.qk_norm),
    )


def _products(builder: LinearBuilder, i: int, qkv_bias: bool) -> LayerProducts:
    names = {name: f"layers.{i}.{name}" for name in ("q", "k", "v", "o", "gate", "up", "down")}
    return LayerProducts(
        qkv=builder.build([names["q"], names["k"], names["v"]], bias=qkv_bias),
        o=builder.build([names["o"]]),
        gate_up=builder.build([names["gate"], names["up"]]),
        down=builder.build([names["down"]]),
    )


def _kinds(layers: list[LayerProducts]) -> str:
    kinds = {linear.kind: None for layer in layers for linear in (layer.qkv, layer.o, layer.gate_up, layer.down)}
    return "+".join(kinds)
