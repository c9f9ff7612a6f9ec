"""Reads the 4-bit matrices of Hugging Face folders: `w = (code - zero) * scale`, whatever the packing.

Source: see `backends.engine.weights.packing`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from backends.engine.errors import ModelFileError
from backends.engine.weights.files import OpenFiles
from backends.engine.weights.inventory import TensorPlace
from backends.engine.weights.packing import WORD, Packing
from backends.engine.weights.source import Int4Blocks
from backends.engine.weights.tensors import read_tensor
from backends.gguf.errors import shown

_CHUNK_ELEMENTS = 2**20
_SYMMETRIC_ZERO = 8
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # where in a word each of eight columns is: AWQ packs 0, 2, 4, 6, 1, 3, 5, 7
_ONES = 0x11111111  # a one in each of the eight places of a word
_GROUPS = (128, 64, 32)


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix [out, in] that is still packed.

    Args:
        packing: how.
        words: the packed codes as the file has them, int32.
        scales: [out, groups] float32, finite.
        zeros: [out, groups] uint8.
        order: the group of each column, [in] int64; None where groups are runs of columns.
        columns: `in`.
    """

    packing: Packing
    words: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    order: torch.Tensor | None
    columns: int

    def dense(self) -> torch.Tensor:
        """[out, in] float32."""
        order = self._default_order() if self.order is None else self.order
        result = torch.empty(len(self.scales), self.columns)
        for rows, codes in self._chunks():
            values = codes.to(torch.float32) - self.zeros[rows].index_select(1, order)
            torch.mul(values, self.scales[rows].index_select(1, order), out=result[rows])
        return result

    def int4(self) -> Int4Blocks | None:
        """The same in blocks; None where groups are not runs of 32, 64 or 128 columns. A scale of a whole row is repeated."""
        whole_row = self.scales.shape[1] == 1
        group = next((size for size in _GROUPS if self.columns % size == 0 and (whole_row or size == self.packing.group)), 0)
        if self.order is not None or not group:
            return None
        codes = torch.empty(len(self.scales), self.columns, dtype=torch.uint8)
        for rows, chunk in self._chunks():
            codes[rows] = chunk
        scales = self.scales.expand(-1, self.columns // group).contiguous()
        minima = (self.zeros * -self.scales).expand(-1, self.columns // group).contiguous()
        return Int4Blocks(codes, scales, minima, group)

    def _default_order(self) -> torch.Tensor:
        return torch.arange(self.columns) // (self.packing.group or self.columns)

    def _chunks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Some rows at a time, with their codes [rows, in] uint8."""
        outputs = len(self.scales)
        step = max(_CHUNK_ELEMENTS // self.columns // WORD, 1) * WORD
        for start in range(0, outputs, step):
            rows = slice(start, min(start + step, outputs))
            yield rows, self._codes(rows)

    def _codes(self, rows: slice) -> torch.Tensor:
        if self.packing.method == "compressed-tensors":
            return _nibbles(self.words[rows]).flatten(1)
        if self.packing.method == "awq":
            words = self.words[:, rows.start // WORD : -(-rows.stop // WORD)]
            return _nibbles(words)[..., _AWQ_PLACES].flatten(1).t()
        return _nibbles(self.words[:, rows].t()).flatten(1)


def read_packed(files: OpenFiles, parts: Mapping[str, TensorPlace], packing: Packing, columns: int) -> PackedMatrix:
    """Read the parts of a matrix.

    Raises:
        ModelFileError: a scale is not finite, a group is out of range, the stored shape is another, or a bias is not zero that
            the model does not have.
    """
    if "bias" in parts and read_tensor(files, parts["bias"]).count_nonzero():
        raise _damaged(parts["bias"], "is a bias, which this architecture does not have")
    by_column = packing.method != "compressed-tensors"
    scales = read_tensor(files, parts["scales" if by_column else "weight_scale"]).to(torch.float32)
    scales = scales.t().contiguous() if by_column else scales
    if "weight_shape" in parts and read_tensor(files, parts["weight_shape"]).tolist() != [len(scales), columns]:
        raise _damaged(parts["weight_shape"], f"is not {[len(scales), columns]}")
    order = _order(files, parts.get("g_idx") or parts.get("weight_g_idx"), packing, columns)
    words = read_tensor(files, parts[packing.main])
    return PackedMatrix(packing, words, scales, _zeros(files, parts, packing, scales), order, columns)


def _zeros(files: OpenFiles, parts: Mapping[str, TensorPlace], packing: Packing, scales: torch.Tensor) -> torch.Tensor:
    """The zero points, [out, groups] uint8."""
    if packing.method == "compressed-tensors":
        if not packing.has_zeros:
            return torch.full_like(scales, _SYMMETRIC_ZERO, dtype=torch.uint8)
        return _nibbles(read_tensor(files, parts["weight_zero_point"]).t()).flatten(1).t().contiguous()
    words = read_tensor(files, parts["qzeros"])
    if packing.method == "gptq":
        words = words + _ONES  # over whole words, carry and all: that is how GPTQModel takes the one away
    nibbles = _nibbles(words)
    return (nibbles[..., _AWQ_PLACES] if packing.method == "awq" else nibbles).flatten(1).t().contiguous()


def _order(files: OpenFiles, place: TensorPlace | None, packing: Packing, columns: int) -> torch.Tensor | None:
    """The group of each column, None where it is what one expects."""
    if place is None:
        return None
    order = read_tensor(files, place).to(torch.int64)
    groups = packing.groups(columns)
    if order.min() < 0 or order.max() >= groups:
        raise _damaged(place, f"holds group {int(order.max())}, but there are {groups}")
    return None if torch.equal(order, torch.arange(columns) // (packing.group or columns)) else order


def _nibbles(words: torch.Tensor) -> torch.Tensor:
    """The eight 4-bit numbers of each int32, lowest bits first: [..., n, 8] uint8."""
    octets = words.contiguous().view(torch.uint8)
    return torch.stack((octets & 15, octets >> 4), dim=-1).view(*words.shape, WORD)


def _damaged(place: TensorPlace, problem: str) -> ModelFileError:
    return ModelFileError(f"{shown(place.path.name)}: tensor {shown(place.name)} {problem}")
