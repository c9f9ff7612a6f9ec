"""From the tensors of a file to a linear layer in one precision."""

from collections.abc import Sequence

import torch

from backends.engine.errors import ModelFileError
from backends.engine.precision.linear import Layer, Linear, Side
from backends.engine.precision.rounding import Int8Rows, to_int4_blocks, to_int8_blocks, to_int8_rows
from backends.engine.weights.source import Int4Blocks, Int8Blocks, WeightSource
from kernels.ops import Device

_GROUPS = {"int4-g32": 32, "int4-g64": 64, "int4-g128": 128}
DENSE_KINDS = ("F32", "F16", "BF16")
"""What files call matrices that are not quantised."""

Matrix = torch.Tensor | Int8Rows | Int8Blocks | Int4Blocks
"""A matrix in the precision that it is going to have."""


class LinearBuilder:
    """Builds the linear layers of one phase.

    Args:
        precision: `bf16`, `fp32`, `fp8`, `int8` or `int4-g*`; or `file`: 4-bit and 8-bit blocks as they are in the file, else
            8 bits where the file has 8 or fewer, else bfloat16.
        dynamic: 8-bit layers round activations too (for many rows).
    """

    def __init__(self, source: WeightSource, precision: str, device: Device, *, dynamic: bool) -> None:
        self._source, self._precision, self._device, self._dynamic = source, precision, device, dynamic

    def build(self, names: Sequence[str], *, bias: bool = False) -> Linear:
        """Read matrices with one input, and make one layer of them; with `bias` each has one, `name.bias`.

        Raises:
            ModelFileError: the data are damaged, or no kernel can hold them.
        """
        matrices = [self._read(name) for name in names]
        biases = [self._source.dense(f"{name}.bias").float() if bias else None for name in names]
        try:
            if len({_form(matrix) for matrix in matrices}) == 1:
                return self._layer(matrices, torch.cat([one for one in biases if one is not None]) if bias else None)
            return Side([self._layer([matrix], one) for matrix, one in zip(matrices, biases, strict=True)])
        except ValueError as error:
            raise ModelFileError(f"{', '.join(names)}: {error}") from error

    def _read(self, name: str) -> Matrix:
        source, precision = self._source, self._precision
        if precision == "file" and source.kind(name) in DENSE_KINDS:
            precision = "bf16"
        if precision == "file" or precision in _GROUPS:
            blocks = source.int4(name)
            if blocks is not None and _GROUPS.get(precision, blocks.group) == blocks.group:
                return blocks
        if precision in _GROUPS:
            return to_int4_blocks(source.dense(name), _GROUPS[precision])
        if precision in ("int8", "file"):
            if self._dynamic or not self._device.int8_group:
                return to_int8_rows(source.dense(name))
            return source.int8(name) or to_int8_blocks(source.dense(name))
        return source.dense(name).to(torch.float32 if precision == "fp32" else torch.bfloat16)

    def _layer(self, matrices: Sequence[Matrix], bias: torch.Tensor | None) -> Linear:
        """Make one layer of matrices of one form."""
        matrix, device = _joined(matrices), self._device
        if isinstance(matrix, torch.Tensor):
            if self._precision == "fp8":
                return Layer(device.fp8(matrix, bias), "fp8")
            return Layer(device.dense(matrix, bias), "bf16" if matrix.dtype == torch.bfloat16 else "fp32")
        if isinstance(matrix, Int4Blocks):
            product = device.int4(matrix.codes, matrix.scales, matrix.minima, matrix.group, bias)
            return Layer(product, f"int4-g{matrix.group}")
        make = device.int8_dynamic if self._dynamic else device.int8
        return Layer(
            make(matrix.codes, matrix.scales, bias), f"int8-g{device.int8_group}" if matrix.scales.dim() > 1 else "int8"
        )


def _joined(matrices: Sequence[Matrix]) -> Matrix:
    """One matrix with the rows of all."""
    first = matrices[0]

    def rows(name: str) -> torch.Tensor:
        return torch.cat([getattr(matrix, name) for matrix in matrices])

    if isinstance(first, torch.Tensor):
        return torch.cat([matrix for matrix in matrices if isinstance(matrix, torch.Tensor)])
    if isinstance(first, Int4Blocks):
        return Int4Blocks(rows("codes"), rows("scales"), rows("minima"), first.group)
    return type(first)(rows("codes"), rows("scales"))


def _form(matrix: Matrix) -> object:
    """What has to agree before matrices can be joined."""
    return (Int4Blocks, matrix.group) if isinstance(matrix, Int4Blocks) else type(matrix)
