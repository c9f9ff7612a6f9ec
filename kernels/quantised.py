"""Products with quantised weights in plain torch: what the fast ones are tested against."""

import torch

FP8_LARGEST = 448.0
"""Of float8_e4m3fn."""


def int4_weight(codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor, group: int) -> torch.Tensor:
    """Return `codes * scales + minima`, exact up to one rounding of float32.

    Args:
        codes: [outputs, inputs] uint8, 0 to 15.
        scales, minima: [outputs, inputs / group], rounded up. They are what float16 holds.

    Returns:
        [outputs, inputs] float32.
    """
    inputs = codes.shape[1]
    return codes.float() * _spread(scales, group, inputs) + _spread(minima, group, inputs)


def int8_weight(codes: torch.Tensor, scales: torch.Tensor, group: int = 32) -> torch.Tensor:
    """Return `codes * scales`.

    Args:
        codes: [outputs, inputs] int8.
        scales: [outputs, inputs / group], rounded up, or [outputs]. They are what float16 holds.

    Returns:
        [outputs, inputs] float32.
    """
    inputs = codes.shape[1]
    return codes.float() * (_spread(scales, group, inputs) if scales.dim() == 2 else scales.half().float()[:, None])


def _spread(factors: torch.Tensor, group: int, inputs: int) -> torch.Tensor:
    return factors.half().float().repeat_interleave(group, 1)[:, :inputs]


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply in float32 and round once.

    Args:
        x: [rows, inputs].
        weight: [outputs, inputs]. The fast products round it to the type of `x` for two rows and more, and keep it in float32
            for one.
        bias: [outputs], or None.

    Returns:
        [rows, outputs] of the type of `x`.
    """
    out = x.float() @ weight.float().t()
    return (out if bias is None else out + bias.float()).to(x.dtype)


def fp8_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round each row to float8_e4m3fn, so that its largest number becomes the largest one there is.

    Source: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), section 3; one scale per row, not per tensor.

    Returns:
        [rows, columns] float8_e4m3fn and [rows, 1] float32: codes, and what they are multiplied with.
    """
    wide = x.float()
    scales = wide.abs().amax(-1, keepdim=True) / FP8_LARGEST
    inverse = torch.where(scales > 0, 1 / scales, 0)
    return (wide * inverse).clamp(-FP8_LARGEST, FP8_LARGEST).to(torch.float8_e4m3fn), scales


def fp8_product(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply rows that are rounded by `fp8_rows`.

    Args:
        x: [rows, inputs].
        codes: [outputs, inputs] float8_e4m3fn.
        scales: [outputs] float32.
        bias: [outputs], or None.

    Returns:
        [rows, outputs] bfloat16.
    """
    rounded, row_scales = fp8_rows(x)
    out = rounded.float() @ codes.float().t() * row_scales * scales
    return (out if bias is None else out + bias.float()).to(torch.bfloat16)
