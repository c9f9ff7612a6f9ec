"""Keys and values in eight bits, in plain torch: one scale for each token and head, value = code * scale."""

import torch

LIMITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""The largest magnitude of a code, which the largest number of a vector gets."""


def encode(values: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Round to codes, to the nearest and halves to even, as `kernels.reference.write` does. A vector of zeros has scale 0.

    Args:
        values: [..., head_dim], floating point.
        dtype: int8 or float8_e4m3fn.

    Returns:
        Codes [..., head_dim] of `dtype` and scales [...] float32.
    """
    exact = values.float()
    scales = exact.abs().amax(-1) / LIMITS[dtype]
    scaled = exact * torch.where(scales > 0, 1 / scales, 0)[..., None]
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scales


def decode(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Multiply codes [..., head_dim] by their scales [...] in float32, then round to `dtype`."""
    return (codes.float() * scales[..., None]).to(dtype)
