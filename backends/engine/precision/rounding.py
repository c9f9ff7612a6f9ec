"""Rounding matrices to 4 and 8 bits: one scale for each group of columns, or for each row."""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from backends.engine.weights.source import Int4Blocks, Int8Blocks

_LEVELS = 15
_INT8_GROUP = 32


@dataclass(frozen=True, slots=True)
class Int8Rows:
    """A matrix in 8 bits: `codes` [out, in] int8 times `scales` [out] float32."""

    codes: torch.Tensor
    scales: torch.Tensor


def to_int4_blocks(weight: torch.Tensor, group: int) -> Int4Blocks:
    """Round each group of columns to 16 evenly spaced levels between its smallest and its largest number.

    Scales and minima are what float16 holds, and codes fit those. Columns that do not fill the last group are padded with zeros
    (layers pad the activations).
    """
    grouped = _in_groups(weight, group)
    low, high = grouped.amin(-1).half().float(), grouped.amax(-1)
    scales = ((high - low) / _LEVELS).half().float()
    steps = torch.where(scales > 0, scales, 1)
    codes = ((grouped - low[..., None]) / steps[..., None]).round_().clamp_(0, _LEVELS)
    return Int4Blocks(codes.to(torch.uint8).flatten(-2), scales, low, group)


def to_int8_blocks(weight: torch.Tensor) -> Int8Blocks:
    """Round each group of 32 columns to 255 levels, symmetrically, padded as above. Scales are what float16 holds."""
    grouped = _in_groups(weight, _INT8_GROUP)
    scales = (grouped.abs().amax(-1) / 127).half().float()
    steps = torch.where(scales > 0, scales, 1)
    codes = (grouped / steps[..., None]).round_().clamp_(-127, 127)
    return Int8Blocks(codes.to(torch.int8).flatten(-2), scales)


def to_int8_rows(weight: torch.Tensor) -> Int8Rows:
    """Round each row to 255 levels. Source: Dettmers et al., "LLM.int8()" (2022), section 2.1, without its outlier columns."""
    weight = weight.float()
    scales = weight.abs().amax(-1).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return Int8Rows((weight / scales[:, None]).round_().to(torch.int8), scales)


def _in_groups(weight: torch.Tensor, group: int) -> torch.Tensor:
    """[out, groups, group] float32."""
    return F.pad(weight.float(), (0, -weight.shape[1] % group)).view(len(weight), -1, group)
