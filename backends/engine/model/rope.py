"""Tables of the angles of rotary embeddings, computed once: in float32, step by step as where models are trained.

Exact angles would differ from these by 1e-4 after a thousand positions, which shows in the logits.
Source: Su et al., "RoFormer" (2021), section 3.4.2; the frequency-dependent scaling of Llama 3.1 as in its model card's code.
"""

import math

import torch

from backends.engine.shape import RopeShape


def angle_table(rope: RopeShape, head_dim: int, positions: int) -> torch.Tensor:
    """Cosines, then sines, of all angles. Returns [positions, head_dim] float32."""
    wavelengths = rope.base ** (torch.arange(0, head_dim, 2).float() / head_dim)  # over 2 pi
    if rope.divisors:
        wavelengths = torch.tensor(rope.divisors) * wavelengths
    frequencies = 1.0 / wavelengths
    frequencies = _stretched(frequencies, rope) if rope.original_context else frequencies / rope.factor
    angles = torch.arange(positions).float()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1)


def _stretched(frequencies: torch.Tensor, rope: RopeShape) -> torch.Tensor:
    """Keep high frequencies, divide low ones by the factor, and blend between."""
    turns = rope.original_context / (2 * math.pi / frequencies)
    blend = ((turns - rope.low) / (rope.high - rope.low)).clamp(0, 1)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies
