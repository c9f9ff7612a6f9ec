"""4-bit weights in groups of columns, on torch's packed CPU kernel: a quarter of bfloat16's memory, for few rows.

`w = code * scale + minimum`; the kernel wants `w = (code - 8) * scale + zero`, so `zero = minimum + 8 * scale`.
"""

import torch
from torch.nn import functional as F

from backends.engine.weights.source import Int4Blocks

_LEVELS = 15
_OUTPUTS = 16  # the kernel computes so many at once


def round_groups(weight: torch.Tensor, group: int) -> Int4Blocks:
    """Round each group of columns to 16 evenly spaced levels between its smallest and its largest number.

    Columns that do not fill the last group are padded with zeros (`Int4` pads the activations).
    """
    weight = F.pad(weight.float(), (0, -weight.shape[1] % group))
    grouped = weight.view(len(weight), -1, group)
    low, high = grouped.amin(-1), grouped.amax(-1)
    scales = ((high - low) / _LEVELS).bfloat16().float()  # the kernel's type: the codes must fit the rounded scale
    low = (low + 8 * scales).bfloat16().float() - 8 * scales
    steps = torch.where(scales > 0, scales, 1)
    codes = ((grouped - low[..., None]) / steps[..., None]).round_().clamp_(0, _LEVELS)
    return Int4Blocks(codes.to(torch.uint8).flatten(-2), scales, low, group)


class Int4:
    """Packed 4-bit weights with bfloat16 scales and zeros.

    Args:
        blocks: codes, scales and minima; the rows of several matrices may have been joined.
        bias: [out] float32, or None.
    """

    def __init__(self, blocks: Int4Blocks, bias: torch.Tensor | None) -> None:
        self._outputs, self._columns = blocks.codes.shape
        padding = (0, 0, 0, -self._outputs % _OUTPUTS)
        codes, scales, minima = (F.pad(part, padding) for part in (blocks.codes, blocks.scales, blocks.minima))
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1)
        # The kernel wants [groups, out, 2].
        self._scales = torch.stack([scales, minima + 8 * scales], -1).transpose(0, 1).contiguous().bfloat16()
        self._group = blocks.group
        self._bias = None if bias is None else bias.bfloat16()
        self.nbytes = self._packed.nbytes + self._scales.nbytes
        self.kind = f"int4-g{blocks.group}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        if x.shape[1] < self._columns:
            x = F.pad(x, (0, self._columns - x.shape[1]))
        out: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self._packed, self._group, self._scales)
        if out.shape[1] > self._outputs:
            out = out[:, : self._outputs].contiguous()
        return out if self._bias is None else out + self._bias
