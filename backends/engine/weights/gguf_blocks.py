"""The block formats of GGUF, taken apart into integer codes, scales and minima: `w = code * scale + minimum`.

All of them have that form, so dequantising is one line for all, and what an integer kernel wants is there without a detour.
Every product is exact in float32 and the sum is rounded once, as in ggml.

Source: `ggml/src/ggml-common.h` (layouts) and `ggml-quants.c` (`dequantize_row_*`) of llama.cpp.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

_SUPER = 256  # elements of a block of the K formats
_GROUP = 32


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of one format.

    Args:
        codes: [blocks, groups, group] int8 or uint8.
        scales: [blocks, groups] float32, not checked: damaged data can hold infinity and NaN.
        minima: the same, or None for zero.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor | None = None

    def dense(self) -> torch.Tensor:
        """[blocks, groups * group] float32."""
        values = self.codes.to(torch.float32).mul_(self.scales.unsqueeze(-1))
        if self.minima is not None:
            values += self.minima.unsqueeze(-1)
        return values.flatten(1)


def _half(raw: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at byte `at` of every block, [blocks, 1] float32."""
    return raw[:, at : at + 2].contiguous().view(torch.float16).to(torch.float32)


def _fields(raw: torch.Tensor, bits: int) -> torch.Tensor:
    """All fields of `bits` bits in bytes [..., n]: [..., 8 / bits, n] uint8, the lowest bits first."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8).unsqueeze(-1)
    return torch.bitwise_right_shift(raw.unsqueeze(-2), shifts).bitwise_and_(2**bits - 1)


def _nibbles(raw: torch.Tensor) -> torch.Tensor:
    """A group of 32 in 16 bytes: the low halves are its first 16 codes. [blocks, 1, 32] uint8."""
    return _fields(raw, 4).flatten(1).unsqueeze(1)


def _fifth_bits(raw: torch.Tensor) -> torch.Tensor:
    """The bits of 4 bytes, in order, in the place of a fifth bit. [blocks, 1, 32] uint8."""
    return (_fields(raw, 1).transpose(-1, -2).flatten(1) << 4).unsqueeze(1)


def _q4_0(raw: torch.Tensor) -> Blocks:
    return Blocks(_nibbles(raw[:, 2:18]).to(torch.int8) - 8, _half(raw, 0))


def _q4_1(raw: torch.Tensor) -> Blocks:
    return Blocks(_nibbles(raw[:, 4:20]), _half(raw, 0), _half(raw, 2))


def _q5_0(raw: torch.Tensor) -> Blocks:
    codes = _nibbles(raw[:, 6:22]) | _fifth_bits(raw[:, 2:6])
    return Blocks(codes.to(torch.int8) - 16, _half(raw, 0))


def _q5_1(raw: torch.Tensor) -> Blocks:
    return Blocks(_nibbles(raw[:, 8:24]) | _fifth_bits(raw[:, 4:8]), _half(raw, 0), _half(raw, 2))


def _q8_0(raw: torch.Tensor) -> Blocks:
    return Blocks(raw[:, 2:34].contiguous().view(torch.int8).unsqueeze(1), _half(raw, 0))


def _q2_k(raw: torch.Tensor) -> Blocks:
    packed, codes, d, dmin = raw[:, 0:16], raw[:, 16:80], _half(raw, 80), _half(raw, 82)
    # 32 bytes at a time; each holds one code of four runs of 32 elements.
    codes = _fields(codes.view(-1, 2, 32), 2).reshape(-1, 16, 16)
    return Blocks(codes, d * (packed & 15), dmin * (packed >> 4) * -1.0)


def _q3_k(raw: torch.Tensor) -> Blocks:
    high, low, packed, d = raw[:, 0:32], raw[:, 32:96], raw[:, 96:108], _half(raw, 108)
    # Scales have 6 bits: the lower four in 8 bytes, the upper two in 4 bytes, both 16 in order of the shift.
    scales = _fields(packed[:, :8], 4).flatten(1) | (_fields(packed[:, 8:], 2).flatten(1) << 4)
    codes = _fields(low.view(-1, 2, 32), 2).flatten(1)
    # A set high bit stands for no subtraction of 4.
    codes = codes.to(torch.int8) - 4 + (_fields(high, 1).flatten(1) << 2).to(torch.int8)
    return Blocks(codes.view(-1, 16, 16), d * (scales.to(torch.int8) - 32))


def _six_bit_pairs(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eight scales and eight minima of 6 bits each in 12 bytes, twice [blocks, 8] uint8."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = torch.cat([first & 63, (third & 15) | (first >> 6 << 4)], dim=1)
    minima = torch.cat([second & 63, (third >> 4) | (second >> 6 << 4)], dim=1)
    return scales, minima


def _with_minima(raw: torch.Tensor, codes: torch.Tensor) -> Blocks:
    scales, minima = _six_bit_pairs(raw[:, 4:16])
    return Blocks(codes.view(-1, _SUPER // _GROUP, _GROUP), _half(raw, 0) * scales, _half(raw, 2) * minima * -1.0)


def _q4_k(raw: torch.Tensor) -> Blocks:
    return _with_minima(raw, _fields(raw[:, 16:144].view(-1, 4, 32), 4))


def _q5_k(raw: torch.Tensor) -> Blocks:
    low = _fields(raw[:, 48:176].view(-1, 4, 32), 4).flatten(1)
    return _with_minima(raw, low | (_fields(raw[:, 16:48], 1).flatten(1) << 4))


def _q6_k(raw: torch.Tensor) -> Blocks:
    low = _fields(raw[:, 0:128].view(-1, 2, 64), 4).flatten(1)
    high = _fields(raw[:, 128:192].view(-1, 2, 32), 2).flatten(1)
    scales = raw[:, 192:208].contiguous().view(torch.int8)
    codes = (low | (high << 4)).to(torch.int8) - 32
    return Blocks(codes.view(-1, 16, 16), _half(raw, 208) * scales)


BLOCK_FORMATS: dict[str, Callable[[torch.Tensor], Blocks]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
"""By ggml type: from bytes [blocks, block_bytes] uint8 to `Blocks`."""
