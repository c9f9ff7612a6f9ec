"""The forward pass: one loop over the layers, the same for both phases, on any device's operators."""

import torch

from backends.engine.model.weights import LayerProducts, ModelWeights
from backends.engine.shape import ModelShape
from kernels.ops import Attention, Ops


class Transformer:
    """A model and the operators that it runs on.

    Args:
        tokens: the words from this id on only pad the vocabulary and are never to be chosen; None where there are none.
    """

    def __init__(self, shape: ModelShape, weights: ModelWeights, ops: Ops, tokens: int | None = None) -> None:
        self.shape, self.weights, self.ops = shape, weights, ops
        self._tokens = shape.vocab if tokens is None else tokens

    def run(
        self, layers: list[LayerProducts], tokens: torch.Tensor, attention: Attention, rows: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the final hidden states of a planned batch.

        Args:
            layers: `weights.prefill` or `weights.decode`.
            tokens: [n] int64, anywhere.
            attention: planned for these tokens.
            rows: the rows whose result is wanted, [m] int64, or None for all; empty when only keys and values are.

        Returns:
            [m, hidden] float32, normed, ready for the head; valid until the next call.
        """
        shape, weights, ops = self.shape, self.weights, self.ops
        x = weights.embed.rows(tokens)
        if shape.embedding_scale != 1:
            x *= shape.embedding_scale
        delta = post = None
        last = len(layers) - 1
        for i, (norms, products) in enumerate(zip(weights.norms, layers, strict=True)):
            normed = ops.add_norm(x, delta, norms.attn, post)
            attended = attention(products.qkv(normed), i)
            if i == last and rows is not None:
                # Nothing attends to the last layer's output: only the rows that are wanted go on.
                if not len(rows):
                    return x[:0]
                wanted = rows.to(x.device)
                x, attended = x[wanted], attended[wanted]
            delta, post = products.o(attended), norms.attn_post
            normed = ops.add_norm(x, delta, norms.ffn, post)
            delta, post = products.down(ops.gated(products.gate_up(normed))), norms.ffn_post
        return ops.add_norm(x, delta, weights.final_norm, post, exact=True)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Turn final hidden states into logits: [n, hidden] to [n, vocab], float32."""
        logits = self.weights.head.logits(hidden)
        if cap := self.shape.logit_softcap:
            logits = cap * torch.tanh(logits / cap)
        logits[:, self._tokens :] = -torch.inf
        return logits
