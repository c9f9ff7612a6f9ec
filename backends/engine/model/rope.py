"""Tables of the angles of rotary embeddings, computed once in float64.

Source: Su et al., "RoFormer" (2021), section 3.4.2; the frequency-dependent scaling of Llama 3.1 as in its model card's code.
"""

import math

import torch

from backends.engine.shape import RopeShape


def angle_table(rope: RopeShape, head_dim: int, positions: int) -> torch.Tensor:
    """Cosines, then sines, of all angles. Returns [positions, head_dim] float32."""
    frequencies = rope.base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if rope.divisors:
        frequencies = frequencies / torch.tensor(rope.divisors, dtype=torch.float64)
    if rope.original_context:
        frequencies = _stretched(frequencies, rope)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] / rope.factor * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1).float()


def _stretched(frequencies: torch.Tensor, rope: RopeShape) -> torch.Tensor:
    """Keep high frequencies, divide low ones by the factor, and blend between; positions then are not scaled again."""
    turns = rope.original_context * frequencies / (2 * math.pi)
    blend = ((turns - rope.low) / (rope.high - rope.low)).clamp(0, 1)
    return rope.factor * frequencies * (blend + (1 - blend) / rope.factor)
