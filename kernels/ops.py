"""The one door to the operators: what an engine asks of a device, and who does it there.

A forward pass is: norm, queries and keys and values, attention, output, norm, gate and up, gated, down. The matrix products are
the engine's; everything between them is here. Attention is planned once for a batch and then run for every layer.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from kernels.batch import AttentionShape, DecodeBatch, KvPool, LayerPlace, PrefillChunk
from kernels.cpu.ops import CpuOps
from kernels.reference import TorchOps

_LANES = 16  # the vectors that kernels.cpu reads the cache in


class Attention(Protocol):
    """A planned batch."""

    def __call__(self, qkv: torch.Tensor, layer: int) -> torch.Tensor:
        """Norm and rotate queries and keys, write keys and values into the cache, and attend.

        Args:
            qkv: [rows, (heads + 2 * kv_heads) * head_dim], contiguous; overwritten.

        Returns:
            [rows, heads * head_dim], valid until the next call.
        """
        ...


class Ops(Protocol):
    """The operators of one model on one device. Activations are of one type throughout; the residual stream is float32."""

    def add_norm(
        self,
        residual: torch.Tensor,
        delta: torch.Tensor | None,
        weight: torch.Tensor,
        post: torch.Tensor | None = None,
        *,
        exact: bool = False,
    ) -> torch.Tensor:
        """Add `delta` to the residual stream in place, then norm it (Zhang and Sennrich, 2019, equation 4).

        Args:
            residual: [rows, hidden] float32.
            delta: [rows, hidden], or None for the first norm of all.
            weight: [hidden] float32.
            post: [hidden] float32: `delta` is normed with it before it is added.
            exact: return float32 instead of the activations' type.

        Returns:
            [rows, hidden], valid until the next call.
        """
        ...

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Return activation(gate) * up, [rows, intermediate], from [rows, 2 * intermediate]; valid until the next call."""
        ...

    def decode(self, batch: DecodeBatch) -> Attention:
        """Plan attention of single tokens. Their bits do not depend on what else is in the batch."""
        ...

    def prefill(self, chunks: Sequence[PrefillChunk]) -> Attention:
        """Plan attention of parts of prompts. Their rows fill the batch, in order."""
        ...


def make_ops(
    shape: AttentionShape, pools: Sequence[KvPool], layers: Sequence[LayerPlace], dtype: torch.dtype, threads: int
) -> Ops:
    """Choose the fastest operators that this machine can run.

    Args:
        dtype: of activations: bfloat16 or float32.
        threads: at most so many.

    Raises:
        ValueError: the model's shape is not possible.
    """
    if shape.heads % shape.kv_heads or shape.head_dim % 2:
        raise ValueError(f"{shape.heads} heads of {shape.head_dim} cannot share {shape.kv_heads} key/value heads")
    if shape.head_dim % _LANES:
        return TorchOps(shape, pools, layers, dtype)
    return CpuOps(shape, pools, layers, dtype, threads)
