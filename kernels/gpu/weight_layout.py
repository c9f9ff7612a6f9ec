"""How weights of 4 and 8 bits lie in a GPU's memory, and how kernels read them.

The input is cut into chunks of 128. `words[chunk, output]` holds the 128 codes of one output, 32 bits after 32 bits, and
`factors[chunk, output]` what they are multiplied with: whatever outputs a program computes, their codes of a chunk are one
stretch of memory, read once, 16 bytes a thread. The last chunk is filled up with codes and factors of 0.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch.nn import functional as F

CHUNK = 128
"""Inputs in a chunk."""

GROUPS = (32, 64, 128)
"""Inputs that may share a scale."""

INT8_GROUP = 32
"""Inputs that share a scale of 8-bit weights, where an output has several."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix of 4-bit weights, `code * scale + minimum`, or of 8-bit weights, `code * scale`.

    Args:
        words: [chunks, outputs, 16 or 32] int32: 8 or 4 codes each, the first in the lowest bits.
        factors: [chunks, outputs, CHUNK / group]: int32 for 4 bits, a float16 scale below a float16 minimum; float16 scales
            for 8 bits. [1, outputs, 1] where an output has one scale.
        columns: inputs.
        group: inputs that share a scale; 0 is all.
    """

    words: torch.Tensor
    factors: torch.Tensor
    columns: int
    group: int

    @property
    def bits(self) -> int:
        """Of a code."""
        return 32 * self.words.shape[2] // CHUNK

    @property
    def outputs(self) -> int:
        """Rows of the matrix."""
        return self.words.shape[1]

    @property
    def nbytes(self) -> int:
        """What the matrix takes."""
        return self.words.nbytes + self.factors.nbytes

    @property
    def mask(self) -> int:
        """Ones for the bits of a code."""
        return (1 << self.bits) - 1

    @property
    def factor_stride(self) -> int:
        """Factors from a chunk to the next."""
        return self.factors.stride(0) if self.group else 0

    @property
    def tile_group(self) -> int:
        """Inputs of a chunk that share a scale."""
        return self.group or CHUNK


def pack_int4(codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor, group: int) -> Packed:
    """Lay out `w[n, k] = codes[n, k] * scales[n, k // group] + minima[n, k // group]`.

    Symmetric weights have `minima = -8 * scales`, zero points `minima = -zeros * scales`.

    Args:
        codes: [outputs, inputs] uint8, 0 to 15.
        scales, minima: [outputs, inputs / group], rounded up; they are rounded to float16.
        group: 32, 64 or 128.

    Raises:
        ValueError: another group, shapes that do not fit, codes above 15, or a factor that float16 cannot hold.
    """
    if group not in GROUPS:
        raise ValueError(f"groups of {group} inputs are not possible, only of {', '.join(map(str, GROUPS))}")
    if codes.dtype != torch.uint8 or bool((codes > 15).any()):
        raise ValueError(f"4-bit codes must be uint8 up to 15, not {codes.dtype} up to {int(codes.max())}")
    factors = torch.stack([_in_chunks(part, codes, group) for part in (scales, minima)], -1)
    return Packed(_words(codes, 4), factors.view(torch.int32)[..., 0], codes.shape[1], group)


def pack_int8(codes: torch.Tensor, scales: torch.Tensor) -> Packed:
    """Lay out `w[n, k] = codes[n, k] * scales[n, k // 32]`, or `codes[n, k] * scales[n]`.

    Args:
        codes: [outputs, inputs] int8.
        scales: [outputs, inputs / 32], rounded up, or [outputs]; they are rounded to float16.

    Raises:
        ValueError: shapes or types that do not fit, or a scale that float16 cannot hold.
    """
    if codes.dtype != torch.int8:
        raise ValueError(f"8-bit codes must be int8, not {codes.dtype}")
    if scales.dim() == 2:
        return Packed(_words(codes, 8), _in_chunks(scales, codes, INT8_GROUP), codes.shape[1], INT8_GROUP)
    if scales.shape != codes.shape[:1]:
        raise ValueError(f"{list(scales.shape)} scales do not fit {codes.shape[0]} outputs")
    return Packed(_words(codes, 8), _halves(scales)[None, :, None].contiguous(), codes.shape[1], 0)


def unpack(packed: Packed) -> torch.Tensor:
    """Return the codes that were packed, [outputs, inputs] uint8 or int8."""
    if packed.bits == 8:
        codes = packed.words.view(torch.int8)
    else:
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.words.device)
        codes = (packed.words[..., None] >> shifts & 15).to(torch.uint8).flatten(-2)
    return codes.transpose(0, 1).reshape(packed.outputs, -1)[:, : packed.columns].contiguous()


def _words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """[outputs, inputs] to [chunks, outputs, words]."""
    outputs, columns = codes.shape
    each = 32 // bits
    split = F.pad(codes, (0, -columns % CHUNK)).view(outputs, -1, CHUNK // each, each)
    words = torch.zeros(split.shape[:-1], dtype=torch.int32, device=codes.device)
    for place in range(each):
        words |= (split[..., place].to(torch.int32) & (1 << bits) - 1) << bits * place
    return words.transpose(0, 1).contiguous()


def _in_chunks(factors: torch.Tensor, codes: torch.Tensor, group: int) -> torch.Tensor:
    """[outputs, groups] to [chunks, outputs, CHUNK / group] float16."""
    outputs, columns = codes.shape
    groups = -(-columns // group)
    if factors.shape != (outputs, groups):
        raise ValueError(f"{list(factors.shape)} factors do not fit {outputs} outputs and {groups} groups")
    each = CHUNK // group
    return F.pad(_halves(factors), (0, -groups % each)).view(outputs, -1, each).transpose(0, 1).contiguous()


def _halves(factors: torch.Tensor) -> torch.Tensor:
    halves = factors.to(torch.float16)
    if not bool(halves.isfinite().all()):
        raise ValueError(f"a factor of {float(factors.abs().max()):g} exceeds what float16 holds")
    return halves


@triton.jit
def load_words(p_words, i_chunk, o_n, outputs, BITS: tl.constexpr, GROUP: tl.constexpr):
    """Read the words of a chunk as [outputs, groups, words of a group]."""
    WORDS: tl.constexpr = 4 * BITS
    EACH: tl.constexpr = GROUP * BITS // 32
    # [1, groups, words of a group]
    o_word = (tl.arange(0, WORDS // EACH)[:, None] * EACH + tl.arange(0, EACH)[None, :])[None, :, :]
    p_tile = p_words + (i_chunk * outputs + o_n)[:, None, None] * WORDS + o_word
    return tl.load(p_tile, mask=(o_n < outputs)[:, None, None], other=0)


@triton.jit
def load_factors(p_factors, i_chunk, o_n, outputs, factor_stride, BITS: tl.constexpr, GROUP: tl.constexpr):
    """Read the scales and minima of a chunk, both [outputs, groups, 1] float32."""
    EACH: tl.constexpr = 128 // GROUP
    p_tile = p_factors + i_chunk * factor_stride + o_n[:, None] * EACH + tl.arange(0, EACH)[None, :]
    b_factors = tl.load(p_tile, mask=(o_n < outputs)[:, None], other=0)[:, :, None]
    if BITS == 4:
        b_scales = b_factors.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        return b_scales, (b_factors >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return b_factors.to(tl.float32), tl.zeros_like(b_factors).to(tl.float32)


@triton.jit
def _code(b_words, mask, PLACE: tl.constexpr, BITS: tl.constexpr):
    """Take one code of each word, as float32.

    A number in the mantissa of a power of two, whose exponent is chosen by the place of its lowest bit, is added to it: one
    instruction puts it there, one subtracts the power, and nothing is converted.
    """
    LOWEST: tl.constexpr = PLACE * BITS % 16
    POWER: tl.constexpr = (127 + 23 - LOWEST) << 23
    # with its sign bit flipped, a signed code is 128 more
    MORE: tl.constexpr = 128 if BITS == 8 else 0
    # 23 bits of mantissa hold half a word
    b_half = b_words if PLACE * BITS < 16 else b_words >> 16
    return ((b_half & (mask << LOWEST)) ^ (POWER | MORE << LOWEST)).to(tl.float32, bitcast=True) - ((1 << (23 - LOWEST)) + MORE)


@triton.jit
def _weight(b_words, mask, b_scales, b_minima, PLACE: tl.constexpr, BITS: tl.constexpr, TYPE: tl.constexpr):
    b_weight = _code(b_words, mask, PLACE, BITS)
    if b_scales is not None:
        # exact in float32
        b_weight *= b_scales
        if BITS == 4:
            b_weight += b_minima
    return b_weight.to(TYPE)


@triton.jit
def _pair(b_words, mask, b_scales, b_minima, PLACE: tl.constexpr, BITS: tl.constexpr, TYPE: tl.constexpr):
    # half of a word apart
    b_low = _weight(b_words, mask, b_scales, b_minima, PLACE, BITS, TYPE)
    return tl.join(b_low, _weight(b_words, mask, b_scales, b_minima, PLACE + 16 // BITS, BITS, TYPE))


@triton.jit
def spread(b_words, mask, b_scales, b_minima, TYPE: tl.constexpr, BITS: tl.constexpr):
    """Turn words into weights, rounded once to TYPE, or without scales into codes.

    Args:
        b_words: [outputs, groups, words of a group].
        mask: ones for a code's bits, known only at run time: of two constants the compiler would put one into an instruction of
            its own, for every weight.
        b_scales, b_minima: [outputs, groups, 1] float32, or None.

    Returns:
        [outputs, 128].
    """
    # each join makes a lower bit of a code's place: the codes of a word stay in one thread, next to each other
    if BITS == 4:
        b_0426 = tl.join(
            _pair(b_words, mask, b_scales, b_minima, 0, 4, TYPE), _pair(b_words, mask, b_scales, b_minima, 2, 4, TYPE)
        )
        b_1537 = tl.join(
            _pair(b_words, mask, b_scales, b_minima, 1, 4, TYPE), _pair(b_words, mask, b_scales, b_minima, 3, 4, TYPE)
        )
        b_all = tl.join(b_0426, b_1537)
    else:
        b_02 = _pair(b_words, mask, b_scales, b_minima, 0, 8, TYPE)
        b_all = tl.join(b_02, _pair(b_words, mask, b_scales, b_minima, 1, 8, TYPE))
    return tl.reshape(b_all, [b_words.shape[0], 128])
