"""4-bit weights in groups of columns on torch's packed kernel: for CPUs that do not multiply bfloat16.

`w = code * scale + minimum`; the kernel wants `w = (code - 8) * scale + zero`, so `zero = minimum + 8 * scale`.
"""

import torch
from torch.nn import functional as F

from backends.engine.weights.source import Int4Blocks

_OUTPUTS = 16  # the kernel computes so many at once


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
