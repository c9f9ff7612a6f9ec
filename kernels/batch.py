"""What a batch looks like to the operators, and what they know of the model. Plain data around tensors."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Numbers that all layers share.

    `scale` multiplies the dot products; a `softcap` of 0 is none; `epsilon` is that of every RMSNorm. `gelu` chooses the tanh
    form of GELU for the gate, else it is SiLU.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    epsilon: float
    softcap: float = 0.0
    gelu: bool = False

    @property
    def row(self) -> int:
        """Numbers in a row of queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim


@dataclass(frozen=True, slots=True)
class KvPool:
    """The cache of the layers that see equally far.

    Args:
        cache: [blocks, layers, 2, block, kv_heads, head_dim] of the activations' type, int8, or float8_e4m3fn on GPUs.
        scales: [blocks, layers, 2, block, kv_heads] float32 for a cache of 8 bits, else None.
        window: keys that a query sees, itself included; 0 is all.
    """

    cache: torch.Tensor
    scales: torch.Tensor | None
    window: int = 0

    @property
    def block(self) -> int:
        """Tokens in a block."""
        return self.cache.shape[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlace:
    """Which pool a layer's keys are in, which of that pool's layers it is, and how its heads are prepared.

    Args:
        angles: [positions, head_dim] float32: cosines of the half head's angles, then their sines.
        q_norm, k_norm: [head_dim] float32, or None.
    """

    pool: int
    index: int
    angles: torch.Tensor
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """One token per row, each attending to its own sequence (a draft's tokens are rows of the same sequence).

    Args:
        positions: [rows] int64, on the host; or where operators compute, and then -1 is a row that only fills the batch.
        tables: for every pool [rows, entries] int64, in the same place: the block of each stretch of tokens; entries before the
            window are unused.
        longest: no position is as large.
    """

    positions: torch.Tensor
    tables: tuple[torch.Tensor, ...]
    longest: int


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Consecutive tokens of one sequence, from position `start` on, in the rows from `row` on of a batch.

    Args:
        tables: for every pool [entries] int64.
    """

    row: int
    count: int
    start: int
    tables: tuple[torch.Tensor, ...]
